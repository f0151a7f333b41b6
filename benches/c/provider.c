/*
 * A provider whose operations do nothing: posts are forgotten, polls answer what was posted, in order.
 *
 * Both sides of a comparison call these very functions, compiled once, in a file of their own, so what they cost is on
 * both sides and nobody's optimiser sees into them.
 */
#include "provider.h"

enum { QP_NUM = 0x1234, BYTES = 48 };

/* One of each for each side of a comparison, so that both can be measured in turns. */
static struct world {
	struct ibv_context context;
	struct ibv_cq send_cq, recv_cq;
	struct ibv_qp qp;
	uint64_t next_send, next_recv;
	uint32_t next_imm;
} worlds[WORLDS];

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
	struct world *world = cq->cq_context;
	uint64_t next = world->next_send;
	world->next_send = next + (uint64_t)room;
	for (int i = 0; i < room; i++)
		wc[i] = (struct ibv_wc){ .wr_id = next++, .opcode = 0, .qp_num = QP_NUM };
	return room;
}

static int poll_recvs(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	struct world *world = cq->cq_context;
	uint64_t next = world->next_recv;
	uint32_t imm = world->next_imm;
	world->next_recv = next + (uint64_t)room;
	world->next_imm = imm + (uint32_t)room;
	for (int i = 0; i < room; i++)
		wc[i] = (struct ibv_wc){ .wr_id = next++, .opcode = 128, .byte_len = BYTES, .qp_num = QP_NUM,
					 .imm_data = __builtin_bswap32(imm++), .wc_flags = 2 };
	return room;
}

/* The first post after a start is remembered, then the operation that does nothing takes over. */
static int first_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	((struct world *)qp->qp_context)->next_send = wr->wr_id;
	qp->context->ops.post_send = post_send;
	return post_send(qp, wr, bad_wr);
}

static int first_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	((struct world *)qp->qp_context)->next_recv = wr->wr_id;
	qp->context->ops.post_recv = post_recv;
	return post_recv(qp, wr, bad_wr);
}

static int notify(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	(void)solicited;
	return 0;
}

void provider_start(int side)
{
	struct world *world = &worlds[side];

	world->context.ops = (struct ibv_context_ops){
		.poll_cq = poll_nothing, .req_notify_cq = notify, .post_send = first_send, .post_recv = first_recv,
	};
	world->send_cq = world->recv_cq = (struct ibv_cq){ .context = &world->context, .cq_context = world };
	world->qp = (struct ibv_qp){
		.context = &world->context, .qp_context = world, .send_cq = &world->send_cq,
		.recv_cq = &world->recv_cq, .qp_num = QP_NUM, .qp_type = 3,
	};
	world->next_imm = 0;
}

void provider_answer(int side, enum answers answers)
{
	worlds[side].context.ops.poll_cq = answers == SENDS ? poll_sends : answers == RECEIVES ? poll_recvs : poll_nothing;
}

struct ibv_context *provider_context(int side) { return &worlds[side].context; }
struct ibv_qp *provider_qp(int side) { return &worlds[side].qp; }
struct ibv_cq *provider_send_cq(int side) { return &worlds[side].send_cq; }
struct ibv_cq *provider_recv_cq(int side) { return &worlds[side].recv_cq; }
