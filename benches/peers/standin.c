/*
 * A stand-in for libibverbs.so.1 with one device, whose objects are those that the program hands in (the provider that does
 * nothing): what libraries that load or link libibverbs find there. Only what they call to set up; posts and polls go straight
 * to the provider's operations, as everywhere.
 *
 * Structures are those of the system's header.
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <string.h>
#undef ibv_query_port
#undef ibv_reg_mr

static struct ibv_context *context;
static struct ibv_qp *qp;
static struct ibv_cq *cqs[2];
static int cqs_made;
static struct ibv_device device = { .name = "noop0", .dev_name = "noop0", .transport_type = IBV_TRANSPORT_IB };
static struct ibv_device *list[2] = { &device, NULL };
static struct ibv_pd pd;
static struct ibv_mr mr = { .lkey = 7, .rkey = 7 };

/* The first completion queue that is made is for sends, the second one for receives. */
void standin_use(struct ibv_context *with, struct ibv_qp *its_qp, struct ibv_cq *send_cq, struct ibv_cq *recv_cq)
{
	context = with;
	context->device = &device;
	qp = its_qp;
	cqs[0] = send_cq;
	cqs[1] = recv_cq;
	cqs_made = 0;
}

struct ibv_device **ibv_get_device_list(int *count) { *count = 1; return list; }
void ibv_free_device_list(struct ibv_device **of) { (void)of; }
const char *ibv_get_device_name(struct ibv_device *of) { return of->name; }
__be64 ibv_get_device_guid(struct ibv_device *of) { (void)of; return 1; }
struct ibv_context *ibv_open_device(struct ibv_device *of) { (void)of; return context; }
int ibv_close_device(struct ibv_context *of) { (void)of; return 0; }

int ibv_query_port(struct ibv_context *of, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	struct ibv_port_attr port_attr = { .state = IBV_PORT_ACTIVE, .gid_tbl_len = 1, .lid = 1 };

	(void)of;
	(void)port;
	memcpy(attr, &port_attr, 48);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *of, struct ibv_gid_entry *entries, size_t max, uint32_t flags, size_t size)
{
	(void)of;
	(void)flags;
	memset(entries, 0, max ? size : 0);
	return max ? 1 : 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *of) { pd.context = of; return &pd; }
int ibv_dealloc_pd(struct ibv_pd *of) { (void)of; return 0; }

struct ibv_mr *ibv_reg_mr(struct ibv_pd *of, void *addr, size_t length, int access)
{
	(void)access;
	mr.context = of->context;
	mr.pd = of;
	mr.addr = addr;
	mr.length = length;
	return &mr;
}
int ibv_dereg_mr(struct ibv_mr *of) { (void)of; return 0; }

struct ibv_cq *ibv_create_cq(struct ibv_context *of, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	(void)of;
	(void)cqe;
	(void)cq_context; /* the provider keeps its own there */
	(void)channel;
	(void)vector;
	return cqs[cqs_made++ & 1];
}
int ibv_destroy_cq(struct ibv_cq *of) { (void)of; return 0; }

struct ibv_qp *ibv_create_qp(struct ibv_pd *of, struct ibv_qp_init_attr *attr) { (void)of; (void)attr; return qp; }
int ibv_destroy_qp(struct ibv_qp *of) { (void)of; return 0; }
int ibv_modify_qp(struct ibv_qp *of, struct ibv_qp_attr *attr, int mask) { (void)of; (void)attr; (void)mask; return 0; }
