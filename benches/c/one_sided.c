/*
 * RDMA writes and reads over one reliable connection between two queue pairs of this process, one after the other: post, poll until
 * it is done. The other side of benches/src/bin/one_sided.rs, which does the same; both print the mean of an operation.
 *
 *	one_sided DEVICE GID_INDEX write|read BYTES ITERATIONS
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, SENDS = 64, RECEIVES = 4 };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
};

static struct end make(const char *name, size_t bytes)
{
	struct end end = { 0 };
	int count, i;
	struct ibv_device **list = ibv_get_device_list(&count);

	CHECK(list);
	for (i = 0; i < count && strcmp(ibv_get_device_name(list[i]), name); i++);
	CHECK(i < count && (end.context = ibv_open_device(list[i])));
	ibv_free_device_list(list);
	CHECK(end.pd = ibv_alloc_pd(end.context));
	CHECK(end.cq = ibv_create_cq(end.context, SENDS + RECEIVES + 2, NULL, NULL, 0));
	struct ibv_qp_init_attr init = {
		.send_cq = end.cq, .recv_cq = end.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = SENDS + 1, .max_recv_wr = RECEIVES + 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK(end.qp = ibv_create_qp(end.pd, &init));
	CHECK(end.memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
	memset(end.memory, 7, bytes);
	CHECK(end.mr = ibv_reg_mr(end.pd, end.memory, bytes, ACCESS));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS };
	CHECK(!ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	return end;
}

static void connect_to(struct end *end, struct end *other, int gid_index)
{
	struct ibv_port_attr port;
	union ibv_gid gid;

	CHECK(!ibv_query_port(end->context, 1, &port));
	CHECK(!ibv_query_gid(other->context, 1, gid_index, &gid));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = other->qp->qp_num, .rq_psn = 0,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 255 } },
	};
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = 0, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 16,
	};
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void perform(struct end *a, struct end *b, enum ibv_wr_opcode opcode, uint32_t bytes, uint64_t number)
{
	struct ibv_sge sge = { (uintptr_t)a->memory, bytes, a->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)b->memory, b->mr->rkey },
	};
	struct ibv_wc wc;
	int came;

	CHECK(!ibv_post_send(a->qp, &wr, &bad));
	while (!(came = ibv_poll_cq(a->cq, 1, &wc)));
	CHECK(came == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == number && wc.qp_num == a->qp->qp_num);
}

int main(int argc, char **argv)
{
	CHECK(argc == 6);
	enum ibv_wr_opcode opcode = strcmp(argv[3], "read") ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	size_t bytes = strtoul(argv[4], NULL, 10), iterations = strtoul(argv[5], NULL, 10);
	struct end a = make(argv[1], bytes), b = make(argv[1], bytes);
	struct timespec from, to;

	connect_to(&a, &b, atoi(argv[2]));
	connect_to(&b, &a, atoi(argv[2]));
	for (size_t i = 0; i < iterations / 10 + 1; i++)
		perform(&a, &b, opcode, bytes, i);
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (size_t i = 0; i < iterations; i++)
		perform(&a, &b, opcode, bytes, i);
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("mean_us=%.3f\n", ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / iterations / 1e3);
	return 0;
}
