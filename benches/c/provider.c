/*
 * A provider whose operations do nothing: posts are forgotten, polls answer what was posted, in order.
 *
 * Both sides of a comparison call these very functions, compiled once, in a file of their own, so what they cost is on
 * both sides and nobody's optimiser sees into them.
 */
#include "provider.h"

enum { QP_NUM = 0x1234, BYTES = 48 };

static uint64_t next_send, next_recv;
static uint32_t next_imm;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	(void)qp;
	(void)wr;
	(void)bad_wr;
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	(void)qp;
	(void)wr;
	(void)bad_wr;
	return 0;
}

static int poll_nothing(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	(void)cq;
	(void)room;
	(void)wc;
	return 0;
}

static int poll_sends(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	(void)cq;
	for (int i = 0; i < room; i++)
		wc[i] = (struct ibv_wc){ .wr_id = next_send++, .opcode = 0, .qp_num = QP_NUM };
	return room;
}

static int poll_recvs(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	(void)cq;
	for (int i = 0; i < room; i++)
		wc[i] = (struct ibv_wc){ .wr_id = next_recv++, .opcode = 128, .byte_len = BYTES, .qp_num = QP_NUM,
					 .imm_data = __builtin_bswap32(next_imm++), .wc_flags = 2 };
	return room;
}

/* The first post after a start is remembered, then the operation that does nothing takes over. */
static int first_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	next_send = wr->wr_id;
	qp->context->ops.post_send = post_send;
	return post_send(qp, wr, bad_wr);
}

static int first_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	next_recv = wr->wr_id;
	qp->context->ops.post_recv = post_recv;
	return post_recv(qp, wr, bad_wr);
}

static int notify(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	(void)solicited;
	return 0;
}

static struct ibv_context context;
static struct ibv_cq queues[2] = { { .context = &context }, { .context = &context } };
static struct ibv_qp qp = {
	.context = &context, .send_cq = &queues[0], .recv_cq = &queues[1], .qp_num = QP_NUM, .qp_type = 3,
};

void provider_start(void)
{
	context.ops = (struct ibv_context_ops){
		.poll_cq = poll_nothing, .req_notify_cq = notify, .post_send = first_send, .post_recv = first_recv,
	};
	next_imm = 0;
}

void provider_answer(enum answers answers)
{
	context.ops.poll_cq = answers == SENDS ? poll_sends : answers == RECEIVES ? poll_recvs : poll_nothing;
}

struct ibv_context *provider_context(void) { return &context; }
struct ibv_qp *provider_qp(void) { return &qp; }
struct ibv_cq *provider_send_cq(void) { return &queues[0]; }
struct ibv_cq *provider_recv_cq(void) { return &queues[1]; }
