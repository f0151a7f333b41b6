/*
 * C's loops: each does one thing n times. Compiled twice (build.rs): as "timed", with -O3 -march=native, and as
 * "counted", with what valgrind can run.
 *
 *	SIDE	the table's name
 *	LEN	frames of a ring
 */
#include "twin.h"

/* A function that the optimiser sees nothing of from outside, as one of another file: the books stay in memory. */
#define APART static __attribute__((noipa))

enum { FRAME_BYTES = 64, LKEY = 7 };

static struct twin twin;
static _Alignas(4096) uint8_t memory[2 * LEN * FRAME_BYTES];

APART void start(struct twin *t)
{
	uint64_t addr = (uintptr_t)memory;

	memset(t, 0, sizeof *t);
	t->qp = provider_qp(IN_C);
	t->tx = (struct ring_state){ 1ull << 32, 0, LEN, 16, FRAME_BYTES, provider_send_cq(IN_C), t->qp->qp_num };
	t->rx = (struct ring_state){ RECEIVE_BIT | 2ull << 32, 0, LEN, 1, FRAME_BYTES, provider_recv_cq(IN_C), t->qp->qp_num };
	t->signal_every = 16;
	t->room_bytes = FRAME_BYTES;
	t->plain = !t->whole_frames && !t->inline_limit_bytes;
	for (uint32_t i = 0; i < LEN; i++, addr += FRAME_BYTES) {
		struct send_slot *send = &t->send[i];
		struct recv_slot *recv = &t->recv[i];
		send->sge = (struct ibv_sge){ addr, FRAME_BYTES, LKEY };
		send->wr.sg_list = &send->sge;
		send->wr.num_sge = 1;
		send->wr.opcode = WR_SEND_WITH_IMM;
		recv->sge = (struct ibv_sge){ addr + LEN * FRAME_BYTES, FRAME_BYTES, LKEY };
		recv->wr.sg_list = &recv->sge;
		recv->wr.num_sge = 1;
	}
}

/* A prepared request, patched and posted: no books. */
APART uint64_t raw(struct twin *t, uint64_t n, size_t bytes)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < n; i++) {
		struct send_slot *slot = &t->send[i & (LEN - 1)];
		struct ibv_send_wr *bad_wr = NULL;
		slot->wr.wr_id = i;
		slot->wr.imm_data = __builtin_bswap32((uint32_t)i);
		slot->sge.length = (uint32_t)bytes;
		sum += !ibv_post_send(t->qp, &slot->wr, &bad_wr);
	}
	return sum;
}

static inline void fill(struct twin *t, struct ibv_send_wr *wr, struct ibv_sge *sge, uint64_t i, size_t bytes)
{
	*sge = (struct ibv_sge){ .addr = t->send[i & (LEN - 1)].sge.addr, .length = (uint32_t)bytes, .lkey = LKEY };
	*wr = (struct ibv_send_wr){ .wr_id = i, .sg_list = sge, .num_sge = 1, .opcode = WR_SEND_WITH_IMM,
				    .send_flags = SEND_SIGNALED, .imm_data = __builtin_bswap32((uint32_t)i) };
}

/* A request filled in and posted, as the manual page does it: no books. */
APART uint64_t fill_and_post(struct twin *t, uint64_t n, size_t bytes)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < n; i++) {
		struct ibv_send_wr wr, *bad_wr = NULL;
		struct ibv_sge sge;
		fill(t, &wr, &sge, i, bytes);
		sum += !ibv_post_send(t->qp, &wr, &bad_wr);
	}
	return sum;
}

/* 16 requests filled in, linked and posted at once: no books. */
APART uint64_t fill_and_post_chain(struct twin *t, uint64_t n, size_t bytes)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < n; i++) {
		struct ibv_send_wr wr[16], *bad_wr = NULL;
		struct ibv_sge sge[16];
		for (int k = 0; k < 16; k++) {
			fill(t, &wr[k], &sge[k], i * 16 + (uint64_t)k, bytes);
			if (k)
				wr[k - 1].next = &wr[k];
		}
		sum += !ibv_post_send(t->qp, wr, &bad_wr);
	}
	return sum;
}

APART uint64_t post(struct twin *t, uint64_t n, size_t bytes)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < n; i++)
		sum += twin_post(t, bytes, 0) == OK;
	return sum;
}

APART uint64_t post_more(struct twin *t, uint64_t n, size_t bytes)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < n; i++)
		sum += twin_post(t, bytes, 1) == OK;
	return sum;
}

APART uint64_t chain(struct twin *t, uint64_t n, size_t bytes)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < n; i++)
		sum += twin_post_chain(t, 16, bytes) == OK;
	return sum;
}

APART uint64_t post_receive(struct twin *t, uint64_t n, size_t bytes)
{
	uint64_t sum = 0;
	(void)bytes;
	for (uint64_t i = 0; i < n; i++)
		sum += twin_post_receive(t) == OK;
	return sum;
}

/* Polls n times for 16 and looks at each entry; `kind` is what each must be. Answers 0 at the first fault. */
static inline __attribute__((always_inline)) uint64_t poll_16(struct twin *t, struct ibv_cq *cq, uint64_t n, enum kind kind, int repost)
{
	_Alignas(64) struct ibv_wc wc[16];
	uint64_t sum = 0;
	for (uint64_t i = 0; i < n; i++) {
		int got = ibv_poll_cq(cq, 16, wc);
		if ((unsigned)got > 16)
			return twin_fault(t), 0;
		for (int k = 0; k < got; k++) {
			struct event event = twin_accept(t, &wc[k], cq);
			if (event.kind != kind)
				return 0;
			sum += kind == SENT ? event.released : event.payload_bytes;
			if (repost && twin_post_receive(t) != OK)
				return 0;
		}
	}
	return sum;
}

APART uint64_t poll_sends(struct twin *t, uint64_t n, size_t bytes)
{
	(void)bytes;
	return poll_16(t, provider_send_cq(IN_C), n, SENT, 0);
}

APART uint64_t poll_receives(struct twin *t, uint64_t n, size_t bytes)
{
	(void)bytes;
	return poll_16(t, provider_recv_cq(IN_C), n, RECEIVED, 0);
}

APART uint64_t poll_and_repost(struct twin *t, uint64_t n, size_t bytes)
{
	(void)bytes;
	return poll_16(t, provider_recv_cq(IN_C), n, RECEIVED, 1);
}

APART uint64_t poll_empty(struct twin *t, uint64_t n, size_t bytes)
{
	struct ibv_cq *cq = provider_send_cq(IN_C);
	_Alignas(64) struct ibv_wc wc[16];
	uint64_t sum = 0;
	(void)bytes;
	for (uint64_t i = 0; i < n; i++) {
		int got = ibv_poll_cq(cq, 16, wc);
		if ((unsigned)got > 16)
			return twin_fault(t), 0;
		sum += got == 0;
	}
	return sum;
}

typedef uint64_t loop(struct twin *t, uint64_t n, size_t bytes);

/* The order is that of `CLoops` in src/c_side.rs. */
const struct {
	struct twin *twin;
	void (*start)(struct twin *t);
	loop *raw, *fill_and_post, *fill_and_post_chain, *post, *post_more, *chain, *post_receive;
	loop *poll_sends, *poll_receives, *poll_and_repost, *poll_empty;
} SIDE = {
	&twin, start, raw, fill_and_post, fill_and_post_chain, post, post_more, chain, post_receive,
	poll_sends, poll_receives, poll_and_repost, poll_empty,
};
