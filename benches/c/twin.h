/*
 * C that keeps the same books as a link (bareverbs_core::link), as a careful C programmer would write it.
 *
 * What both keep, line by line:
 *
 *	broken			nothing is posted or accepted after the first fault
 *	limit, in_flight	no more is posted than the queue takes; who holds each frame
 *	room_bytes		no payload longer than its frame
 *	next_id, wr_id		a number (direction, block, generation, slot) that a completion must match; new blocks in time
 *	next_seq		the number that a message carries, and takes up only when it was posted
 *	unsignalled		every signal_every-th send is signalled, the last that fits, and the last before idle
 *	inline_limit_bytes,	what goes inline; whole frames or exact lengths: decided when the ring is made, one look
 *	whole_frames, plain	later
 *	released_at_once	a completion that ends more than it may means that others are missing
 *	cq, qp_num		a completion of another queue or queue pair ends nothing
 *	status, opcode,		what a receive must be to be a message; byte_len at most what the frame holds
 *	wc_flags, byte_len
 *	expected_seq		the number that must come next
 *
 * What is not the same:
 *
 *	C's storage is pinned, so sg_list is written once. A link may be moved: it is written with each post.
 *	C's poll loops are told how many entries came, as the caller of ibv_poll_cq is; both check that number.
 *	C keeps one bit for a fault, the link its cause: both write it out of the way (cold).
 */
#ifndef TWIN_H
#define TWIN_H
#include "provider.h"
#include <string.h>

#ifndef LEN
#error "LEN, frames of a ring, is to be given: a power of two"
#endif

#define RECEIVE_BIT (1ull << 63)
#define RENEW_BIT (1ull << 31)

enum { WR_SEND = 2, WR_SEND_WITH_IMM = 3, SEND_SIGNALED = 2, SEND_INLINE = 8, WC_WITH_IMM = 2, WC_RECV = 128 };
enum answer { OK = 0, FULL, TOO_LONG, REFUSED, BROKEN };

struct ring_state {
	uint64_t next_id;
	uint32_t in_flight, limit, released_at_once, frame_bytes;
	struct ibv_cq *cq;
	uint32_t qp_num;
};

/* The entry before the request: what a post patches lies in one cache line, as a link has it. */
struct send_slot { _Alignas(64) struct ibv_sge sge; struct ibv_send_wr wr; };
struct recv_slot { _Alignas(64) struct ibv_sge sge; struct ibv_recv_wr wr; };

struct twin {
	struct ibv_qp *qp;
	int broken;
	/* sending */
	struct ring_state tx;
	uint32_t next_seq, unsignalled, signal_every, room_bytes, inline_limit_bytes;
	int whole_frames, plain;
	/* receiving */
	struct ring_state rx;
	uint32_t expected_seq;
	struct send_slot send[LEN];
	struct recv_slot recv[LEN];
};

enum kind { FAULT, SENT, RECEIVED };
struct event {
	enum kind kind;
	uint32_t released;		/* SENT */
	uint32_t seq, payload_bytes;	/* RECEIVED */
	uint8_t *payload;
};

#define COLD static __attribute__((cold, noinline))

COLD enum answer twin_refused(struct twin *t, void *bad_wr)
{
	if (bad_wr)
		return REFUSED;
	t->broken = 1;
	return BROKEN;
}

COLD enum answer twin_fault(struct twin *t)
{
	t->broken = 1;
	return BROKEN;
}

COLD void twin_renew(struct ring_state *ring)
{
	static uint64_t block = 3;
	ring->next_id = (ring->next_id & RECEIVE_BIT) | block++ << 32 | (ring->next_id & (LEN - 1));
}

/* Whole frames, and what goes inline; 0 bytes need no inlining. */
static inline uint32_t twin_by_rules(const struct twin *t, uint32_t bytes, unsigned int *flags)
{
	if (t->whole_frames)
		bytes = t->tx.frame_bytes;
	if (bytes - 1 < t->inline_limit_bytes)
		*flags |= SEND_INLINE;
	return bytes;
}

static inline void twin_patch(struct twin *t, struct send_slot *slot, uint64_t wr_id, uint32_t seq, uint32_t bytes,
			      unsigned int flags)
{
	if (!t->plain)
		bytes = twin_by_rules(t, bytes, &flags);
	slot->wr.wr_id = wr_id;
	slot->wr.send_flags = flags;
	slot->wr.imm_data = __builtin_bswap32(seq);
	slot->sge.length = bytes;
}

/* One send; `more`: another one follows at once. */
static inline enum answer twin_post(struct twin *t, size_t payload_bytes, int more)
{
	struct ring_state *tx = &t->tx;
	if (t->broken)
		return BROKEN;
	if (tx->in_flight >= tx->limit)
		return FULL;
	if (payload_bytes > t->room_bytes)
		return TOO_LONG;
	struct send_slot *slot = &t->send[tx->next_id & (LEN - 1)];
	struct ibv_send_wr *bad_wr = NULL;
	int signalled = !more || t->unsignalled + 1 >= t->signal_every || tx->in_flight + 1 == tx->limit;

	twin_patch(t, slot, tx->next_id, t->next_seq, (uint32_t)payload_bytes, signalled ? SEND_SIGNALED : 0);
	int returned = ibv_post_send(t->qp, &slot->wr, &bad_wr);
	if (__builtin_expect(returned != 0, 0))
		return twin_refused(t, bad_wr);
	tx->next_id++;
	tx->in_flight++;
	t->next_seq++;
	t->unsignalled = signalled ? 0 : t->unsignalled + 1;
	return OK;
}

/*
 * A chain: prepared requests patched and linked from the last to the first, posted in one call, the last one signalled.
 * All lengths are alike here, which a link cannot know: it looks at each message's.
 */
static inline enum answer twin_post_chain(struct twin *t, uint32_t count, size_t payload_bytes)
{
	struct ring_state *tx = &t->tx;
	struct ibv_send_wr *bad_wr = NULL, *next = NULL;
	if (t->broken)
		return BROKEN;
	if (payload_bytes > t->room_bytes)
		return TOO_LONG;
	if (tx->limit - tx->in_flight < count)
		return FULL;
	for (uint32_t i = count; i-- > 0;) {
		struct send_slot *slot = &t->send[(tx->next_id + i) & (LEN - 1)];
		int signalled = i + 1 == count || (t->unsignalled + i + 1) % t->signal_every == 0;
		twin_patch(t, slot, tx->next_id + i, t->next_seq + i, (uint32_t)payload_bytes,
			   signalled ? SEND_SIGNALED : 0);
		slot->wr.next = next;
		next = &slot->wr;
	}
	int returned = ibv_post_send(t->qp, next, &bad_wr);
	if (__builtin_expect(returned != 0, 0))
		return twin_refused(t, bad_wr);
	/* A single post relies on requests being linked to nothing. */
	for (uint32_t i = 0; i < count; i++)
		t->send[(tx->next_id + i) & (LEN - 1)].wr.next = NULL;
	tx->next_id += count;
	tx->in_flight += count;
	t->next_seq += count;
	t->unsignalled = 0;
	return OK;
}

/* One receive, of the frame that is next. */
static inline enum answer twin_post_receive(struct twin *t)
{
	struct ring_state *rx = &t->rx;
	if (t->broken)
		return BROKEN;
	if (rx->in_flight >= rx->limit)
		return FULL;
	struct recv_slot *slot = &t->recv[rx->next_id & (LEN - 1)];
	struct ibv_recv_wr *bad_wr = NULL;
	slot->wr.wr_id = rx->next_id;
	int returned = ibv_post_recv(t->qp, &slot->wr, &bad_wr);
	if (__builtin_expect(returned != 0, 0))
		return twin_refused(t, bad_wr);
	rx->next_id++;
	rx->in_flight++;
	return OK;
}

/* Ends the request of a completion, and those before it; answers how many, 0 if it ends none. */
static inline uint32_t twin_release(struct ring_state *ring, uint64_t posted_id, const struct ibv_wc *wc, struct ibv_cq *cq)
{
	uint32_t posted_after = (ring->next_id - 1 - wc->wr_id) & (LEN - 1);
	uint32_t released = ring->in_flight - posted_after;

	if (posted_id != wc->wr_id || released - 1 >= ring->released_at_once || wc->qp_num != ring->qp_num ||
	    cq != ring->cq)
		return 0;
	ring->in_flight = posted_after;
	if (__builtin_expect((ring->next_id & RENEW_BIT) != 0, 0))
		twin_renew(ring);
	return released;
}

static inline struct event twin_accept(struct twin *t, const struct ibv_wc *wc, struct ibv_cq *cq)
{
	const struct event fault = { .kind = FAULT };
	if (t->broken)
		return fault;
	if (!(wc->wr_id & RECEIVE_BIT)) {
		uint32_t released = twin_release(&t->tx, t->send[wc->wr_id & (LEN - 1)].wr.wr_id, wc, cq);
		if (!released || wc->status)
			return twin_fault(t), fault;
		return (struct event){ .kind = SENT, .released = released };
	}
	struct recv_slot *slot = &t->recv[wc->wr_id & (LEN - 1)];
	if (!twin_release(&t->rx, slot->wr.wr_id, wc, cq))
		return twin_fault(t), fault;
	if (wc->status || wc->opcode != WC_RECV || !(wc->wc_flags & WC_WITH_IMM) || wc->byte_len > t->rx.frame_bytes)
		return twin_fault(t), fault;
	uint32_t seq = __builtin_bswap32(wc->imm_data);
	if (seq != t->expected_seq)
		return twin_fault(t), fault;
	t->expected_seq = seq + 1;
	return (struct event){ .kind = RECEIVED, .seq = seq, .payload_bytes = wc->byte_len,
			       .payload = (uint8_t *)(uintptr_t)slot->sge.addr };
}
#endif
