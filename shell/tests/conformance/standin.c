/* A stand-in for libibverbs.so.1, compiled by the tests: one device, one port, no data path. What it answers is chosen by
 * macros; what was called is counted in exported variables. It knows the layouts by number (x86_64, rdma-core 44), and
 * includes no header of anybody's. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef LIST_ERRNO /* not 0: the list is null, with this errno */
#define LIST_ERRNO 0
#endif
#ifndef PORT_STATE
#define PORT_STATE 4
#endif
#ifndef PORT_BYTES /* of struct ibv_port_attr, as the exported function fills it */
#define PORT_BYTES 48
#endif
#ifndef ALLOC_PD_ERRNO /* 0 or more: alloc_pd answers null, with this errno */
#define ALLOC_PD_ERRNO -1
#endif
#ifndef GIDS /* g(index, last four bytes) for mapped ones, l(index) for fe80::1, f(index) for one that fails */
#define GIDS m(1, 127, 0, 0, 1)
#endif
#ifndef ABI_COMPAT
#define ABI_COMPAT 0
#endif
#ifndef RECORDED_SIZE /* of struct verbs_context */
#define RECORDED_SIZE 648
#endif
#ifndef QUERY_PORT_SLOT
#define QUERY_PORT_SLOT query_port_slot
#endif

#define COUNTED(name) int standin_count_##name;
#define COUNT(name) (standin_count_##name++)
COUNTED(free_device_list) COUNTED(open_device) COUNTED(close_device) COUNTED(alloc_pd) COUNTED(reg_mr)
COUNTED(create_qp) COUNTED(modify_qp) COUNTED(query_port) COUNTED(query_port_slot)
int standin_count_sgid_index = -1; /* of the last move to RTR */

struct device {
    void *ops[2];
    int node_type, transport;
    char name[64], dev_name[64], dev_path[256], ibdev_path[256];
};
static struct device the_device __attribute__((unused)) = {{0, 0}, 1, 0, "standin0", "uverbs0", "", ""};

/* A context with room in front of it for what verbs_context holds there. */
static char memory[2048] __attribute__((aligned(16), unused));
#define CONTEXT (memory + 1024)
#define WORD(address) (*(uint64_t *)(void *)(address))

struct pd { void *context; uint32_t handle; };
struct mr { void *context, *pd, *addr; size_t length; uint32_t handle, lkey, rkey; };
struct cq { void *context, *channel, *cq_context; uint32_t handle; int cqe; char rest[128]; };
struct qp {
    void *context, *qp_context, *pd, *send_cq, *recv_cq, *srq;
    uint32_t handle, qp_num;
    int state, qp_type;
    char rest[128];
};
struct init { void *qp_context, *send_cq, *recv_cq, *srq; uint32_t cap[5]; int qp_type, sq_sig_all; };

/* The inline operations; without the function that opens a device they go unused. */
#pragma GCC diagnostic ignored "-Wunused-function"
static int post(void *qp, void *wr, void **bad) { (void)qp; *bad = wr; return ENOSYS; }
static int poll(void *cq, int most, void *wc) { (void)cq; (void)most; (void)wc; return 0; }
static int notify(void *cq, int solicited) { (void)cq; (void)solicited; return 0; }

/* The first `bytes` of the attributes: every byte 0xAB but for the fields that mean something. */
static int fill_port(char *attr, size_t bytes)
{
    int state = PORT_STATE, mtu = 3, gids = 4;
    uint16_t lid = 0x1234;
    char link_layer = 2;
    memset(attr, 0xAB, bytes);
    memcpy(attr, &state, 4);
    memcpy(attr + 4, &mtu, 4);
    memcpy(attr + 8, &mtu, 4);
    memcpy(attr + 12, &gids, 4);
    memcpy(attr + 34, &lid, 2);
    memcpy(attr + 46, &link_layer, 1);
    return 0;
}

int query_port_slot(void *context, uint8_t port, char *attr, size_t length)
{
    (void)context;
    COUNT(query_port_slot);
    return port == 1 ? fill_port(attr, length < 56 ? length : 56) : EINVAL;
}

#ifndef WITHOUT_ibv_get_device_list
struct device **ibv_get_device_list(int *count)
{
    static struct device *list[2];
    if (LIST_ERRNO) {
        errno = LIST_ERRNO;
        return NULL;
    }
    list[0] = DEVICES ? &the_device : NULL;
    *count = DEVICES;
    return list;
}
#endif
#ifndef WITHOUT_ibv_free_device_list
void ibv_free_device_list(struct device **list) { (void)list; COUNT(free_device_list); }
#endif
#ifndef WITHOUT_ibv_get_device_name
const char *ibv_get_device_name(struct device *device) { return device->name; }
#endif
#ifndef WITHOUT_ibv_open_device
void *ibv_open_device(struct device *device)
{
    COUNT(open_device);
    WORD(CONTEXT) = (uintptr_t)device;
    WORD(CONTEXT + 8 + 8 * 11) = (uintptr_t)poll;
    WORD(CONTEXT + 8 + 8 * 12) = (uintptr_t)notify;
    WORD(CONTEXT + 8 + 8 * 25) = (uintptr_t)post;
    WORD(CONTEXT + 8 + 8 * 26) = (uintptr_t)post;
    *(int *)(void *)(CONTEXT + 264) = -1;
    *(int *)(void *)(CONTEXT + 268) = -1;
    WORD(CONTEXT + 320) = ABI_COMPAT;
    WORD(CONTEXT - 8) = RECORDED_SIZE;
    WORD(CONTEXT - 320) = (uintptr_t)QUERY_PORT_SLOT;
    return CONTEXT;
}
#endif
#ifndef WITHOUT_ibv_close_device
int ibv_close_device(void *context) { (void)context; COUNT(close_device); return 0; }
#endif
#ifndef WITHOUT_ibv_alloc_pd
void *ibv_alloc_pd(void *context)
{
    COUNT(alloc_pd);
    if (ALLOC_PD_ERRNO >= 0) {
        errno = ALLOC_PD_ERRNO;
        return NULL;
    }
    struct pd *pd = calloc(1, sizeof *pd);
    pd->context = context;
    return pd;
}
#endif
#ifndef WITHOUT_ibv_dealloc_pd
int ibv_dealloc_pd(void *pd) { free(pd); return 0; }
#endif
#ifndef WITHOUT_ibv_reg_mr
void *ibv_reg_mr(struct pd *pd, void *addr, size_t length, int access)
{
    (void)access;
    COUNT(reg_mr);
    struct mr *mr = calloc(1, sizeof *mr);
    *mr = (struct mr){pd->context, pd, addr, length, 0, 1, 2};
    return mr;
}
#endif
#ifndef WITHOUT_ibv_dereg_mr
int ibv_dereg_mr(void *mr) { free(mr); return 0; }
#endif
#ifndef WITHOUT_ibv_create_cq
void *ibv_create_cq(void *context, int cqe, void *word, void *channel, int vector)
{
    (void)vector;
    struct cq *cq = calloc(1, sizeof *cq);
    cq->context = context, cq->channel = channel, cq->cq_context = word, cq->cqe = cqe;
    return cq;
}
#endif
#ifndef WITHOUT_ibv_destroy_cq
int ibv_destroy_cq(void *cq) { free(cq); return 0; }
#endif
#ifndef WITHOUT_ibv_create_qp
void *ibv_create_qp(struct pd *pd, struct init *init)
{
    COUNT(create_qp);
    struct qp *qp = calloc(1, sizeof *qp);
    qp->context = pd->context, qp->pd = pd, qp->send_cq = init->send_cq, qp->recv_cq = init->recv_cq;
    qp->qp_num = 17, qp->qp_type = init->qp_type;
    return qp;
}
#endif
#ifndef WITHOUT_ibv_modify_qp
int ibv_modify_qp(struct qp *qp, char *attr, int mask)
{
    (void)qp;
    (void)mask;
    COUNT(modify_qp);
    int state;
    memcpy(&state, attr, 4);
    if (state == 2)
        standin_count_sgid_index = (uint8_t)attr[56 + 20];
    return 0;
}
#endif
#ifndef WITHOUT_ibv_destroy_qp
int ibv_destroy_qp(void *qp) { free(qp); return 0; }
#endif
#ifndef WITHOUT_ibv_query_port
int ibv_query_port(void *context, uint8_t port, char *attr)
{
    (void)context;
    COUNT(query_port);
    return port == 1 ? fill_port(attr, PORT_BYTES) : EINVAL;
}
#endif
#ifndef WITHOUT_ibv_query_gid
static int mapped(uint8_t *gid, uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
    uint8_t bytes[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d};
    memcpy(gid, bytes, 16);
    return 0;
}
static int link_local(uint8_t *gid)
{
    uint8_t bytes[16] = {0xFE, 0x80, [15] = 1};
    memcpy(gid, bytes, 16);
    return 0;
}
int ibv_query_gid(void *context, uint8_t port, int index, uint8_t *gid)
{
    (void)context;
    (void)port;
#define m(at, a, b, c, d) if (index == at) return mapped(gid, a, b, c, d);
#define l(at) if (index == at) return link_local(gid);
#define f(at) if (index == at) return -1;
    GIDS
    (void)link_local;
    (void)mapped;
    memset(gid, 0, 16); /* an empty slot is a success */
    return 0;
}
#endif
