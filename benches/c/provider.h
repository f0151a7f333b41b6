/* The parts of <infiniband/verbs.h> (rdma-core 44) that post and poll need, and a provider whose operations do nothing. */
#ifndef PROVIDER_H
#define PROVIDER_H
#include <stddef.h>
#include <stdint.h>

struct ibv_sge { uint64_t addr; uint32_t length; uint32_t lkey; };

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	uint32_t opcode;
	unsigned int send_flags;
	uint32_t imm_data; /* big-endian */
	uint64_t rest[11];
};

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

struct ibv_wc {
	uint64_t wr_id;
	uint32_t status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

struct ibv_qp;
struct ibv_cq;

struct ibv_context_ops {
	void *before_poll[11];
	int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
	int (*req_notify_cq)(struct ibv_cq *, int);
	void *before_post[12];
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
	void *after_post[5];
};

struct ibv_context {
	void *device;
	struct ibv_context_ops ops;
	int cmd_fd, async_fd, num_comp_vectors;
};

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context, *pd;
	struct ibv_cq *send_cq, *recv_cq;
	void *srq;
	uint32_t handle, qp_num, state, qp_type;
};

struct ibv_cq {
	struct ibv_context *context;
	void *channel, *cq_context;
	uint32_t handle;
	int cqe;
};

_Static_assert(sizeof(struct ibv_send_wr) == 128 && offsetof(struct ibv_send_wr, imm_data) == 36, "ibv_send_wr");
_Static_assert(sizeof(struct ibv_recv_wr) == 32, "ibv_recv_wr");
_Static_assert(sizeof(struct ibv_wc) == 48 && offsetof(struct ibv_wc, wc_flags) == 36, "ibv_wc");
_Static_assert(offsetof(struct ibv_context, ops.poll_cq) == 8 + 88, "poll_cq is slot 11");
_Static_assert(offsetof(struct ibv_context, ops.post_send) == 8 + 200, "post_send is slot 25");
_Static_assert(offsetof(struct ibv_qp, qp_num) == 52, "ibv_qp");

/* What inline functions of the header do. */
static inline int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	return qp->context->ops.post_send(qp, wr, bad_wr);
}

static inline int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return qp->context->ops.post_recv(qp, wr, bad_wr);
}

static inline int ibv_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	return cq->context->ops.poll_cq(cq, num_entries, wc);
}

/* The provider's objects are there once for each side: ours, C's, another library's. */
enum side { OURS, IN_C, PEER, WORLDS };

/* Forgets what was posted. The first post after it is remembered, and polls answer completions from there on, in order. */
void provider_start(int side);
/* What polls answer from now on, as many as there is room for: nothing after a start. */
enum answers { NOTHING, SENDS, RECEIVES };
void provider_answer(int side, enum answers answers);

struct ibv_context *provider_context(int side);
struct ibv_qp *provider_qp(int side);
struct ibv_cq *provider_send_cq(int side);
struct ibv_cq *provider_recv_cq(int side);
#endif
