/* See shim.h. */
#define _GNU_SOURCE
#include "shim.h"
#include "steer.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_interrupts.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_version.h>

_Static_assert(sizeof(struct carrack_frame) == 24, "Frame is 24 bytes");
_Static_assert(offsetof(struct carrack_frame, data) == 0, "Frame.data");
_Static_assert(offsetof(struct carrack_frame, len) == 8, "Frame.len");
_Static_assert(offsetof(struct carrack_frame, headroom) == 10, "Frame.headroom");
_Static_assert(offsetof(struct carrack_frame, tailroom) == 12, "Frame.tailroom");
_Static_assert(offsetof(struct carrack_frame, port) == 14, "Frame.port");
_Static_assert(offsetof(struct carrack_frame, cookie) == 16, "Frame.cookie");
/* The Rust side shows pools a headroom of 128 bytes by default. */
_Static_assert(RTE_PKTMBUF_HEADROOM == 128, "libdpdk was built with an unusual mbuf headroom");

#define BURST_MAX 64

/* ---- packet sockets ------------------------------------------------------------------------------------------- */

/*
 * net_af_packet always asks the kernel to join fragments before it spreads packets over its queues, offers no argument
 * against it, and the kernel takes no second word: a router would receive packets larger than its buffers and lose them.
 * The driver is loaded at run time and finds this function before the C library's, as every caller in the process does.
 * It differs from the C library's in that one flag only.
 */
int setsockopt(int fd, int level, int option, const void *value, socklen_t size)
{
	int fanout;

	if (level == SOL_PACKET && option == PACKET_FANOUT && size == sizeof(fanout)) {
		memcpy(&fanout, value, sizeof(fanout));
		fanout &= ~(PACKET_FANOUT_FLAG_DEFRAG << 16);
		value = &fanout;
	}
	return syscall(SYS_setsockopt, fd, level, option, value, size);
}

/* ---- shared memory -------------------------------------------------------------------------------------------- */

/*
 * A zero-copy memif takes the descriptor of DPDK's own memory for its peer, and closes it once the peer is there. The next
 * port then sends a closed descriptor, or, worse, closes somebody else's file that got the number. So each gets a copy,
 * found before DPDK's own function as above.
 */
int rte_memseg_get_fd(const struct rte_memseg *segment)
{
	static int (*original)(const struct rte_memseg *);
	int fd;

	if (original == NULL)
		*(void **)&original = dlsym(RTLD_NEXT, "rte_memseg_get_fd");
	if (original == NULL)
		return -1;
	fd = original(segment);
	return fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/*
 * What bursts and DPDK's interrupt thread, which serves the control sockets, must know of each other. The driver unmaps
 * the rings of a lost peer without asking whether a burst is under way in them. And it connects a client once, when the
 * port starts: without a server the start fails, and a server that dies is not looked for again. So a client without a
 * link is stopped and started, on that thread, until it has one.
 */
struct memif {
	uint16_t port;
	/* Is it one, and open? */
	atomic_bool used;
	/* Bursts keep out. */
	atomic_bool closed;
	/* Bursts under way. */
	atomic_int inside;
	/* What follows is the interrupt thread's. */
	uint16_t queues;
	/* The driver's own queues. */
	void **rx;
	void **tx;
	bool started;
	/* Periods left for the server to finish the handshake. */
	int patience;
};

#define MEMIF_PERIOD_US 100000
#define MEMIF_PATIENCE 20

static struct memif memifs[RTE_MAX_ETHPORTS];

static inline bool enter(uint16_t port)
{
	struct memif *memif = &memifs[port];

	if (likely(!atomic_load_explicit(&memif->used, memory_order_relaxed)))
		return true;
	atomic_fetch_add(&memif->inside, 1);
	if (likely(!atomic_load(&memif->closed)))
		return true;
	atomic_fetch_sub(&memif->inside, 1);
	return false;
}

static inline void leave(uint16_t port)
{
	struct memif *memif = &memifs[port];

	if (unlikely(atomic_load_explicit(&memif->used, memory_order_relaxed)))
		atomic_fetch_sub(&memif->inside, 1);
}

/* Returns when no burst is under way; none begins until `closed` is what is returned. */
static bool keep_out(struct memif *memif)
{
	bool before = atomic_exchange(&memif->closed, true);

	while (atomic_load(&memif->inside) > 0)
		sched_yield();
	return before;
}

static bool is_up(uint16_t port)
{
	struct rte_eth_link link;

	memset(&link, 0, sizeof(link));
	return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

/*
 * The driver of a zero-copy client forgets the buffers in its rings when the server dies: those it has offered to be filled,
 * 1,024 a ring, and those the server has not taken yet. What follows is how its queues begin (DPDK 20.08 to 24.11), and a
 * ring of the protocol. Where anything looks otherwise nothing is given back.
 */
struct memif_queue {
	struct rte_mempool *pool;
	void *device;
	uint32_t type;
	uint16_t region;
	uint16_t port;
	uint32_t ring_offset;
	uint16_t last_head;
	uint16_t last_tail;
	struct rte_mbuf **buffers;
	uint64_t packets;
	uint64_t bytes;
	void *interrupt;
	uint8_t log2_ring_size;
};

struct memif_ring {
	uint32_t cookie;
	uint16_t flags;
	uint16_t head;
	uint8_t other_line[56];
	uint16_t tail;
	uint8_t another_line[62];
	struct {
		uint16_t flags;
		uint16_t region;
		uint32_t length;
		uint32_t offset;
		uint32_t metadata;
	} slots[];
};

_Static_assert(sizeof(struct memif_ring) == 128, "a ring of the protocol");

#define MEMIF_COOKIE 0x3E31F20

/* The ring of a queue in the memory that is about to be unmapped, if it is there and all buffers in it are the queue's. */
static const struct memif_ring *ring_of(const struct memif *memif, const struct memif_queue *queue, uint32_t type,
					const void *address, size_t size)
{
	const struct memif_ring *ring;
	uint32_t slots;
	uintptr_t base = 0;

	if (queue == NULL || queue->port != memif->port || queue->type != type || queue->region != 0 ||
	    queue->buffers == NULL || queue->log2_ring_size > 14)
		return NULL;
	slots = 1u << queue->log2_ring_size;
	if (size != 2u * memif->queues * (sizeof(*ring) + slots * sizeof(ring->slots[0])) || queue->ring_offset >= size)
		return NULL;
	ring = (const void *)((const char *)address + queue->ring_offset);
	if (ring->cookie != MEMIF_COOKIE || (uint16_t)(ring->head - queue->last_tail) > slots)
		return NULL;
	for (uint16_t at = queue->last_tail; at != ring->head; at++) {
		const struct rte_mbuf *m = queue->buffers[at & (slots - 1)];
		uintptr_t start = m == NULL ? 0 : rte_pktmbuf_mtod(m, uintptr_t) - ring->slots[at & (slots - 1)].offset;

		if (start == 0 || (base != 0 && start != base))
			return NULL;
		base = start;
	}
	return ring;
}

static void empty_ring(struct memif_queue *queue, const struct memif_ring *ring)
{
	uint32_t mask = (1u << queue->log2_ring_size) - 1;

	for (uint16_t at = queue->last_tail; at != ring->head; at++)
		rte_pktmbuf_free_seg(queue->buffers[at & mask]);
	rte_free(queue->buffers);
	queue->buffers = NULL;
}

/* No burst is under way. */
static void give_back(const struct memif *memif, const void *address, size_t size)
{
	for (uint16_t at = 0; memif->rx != NULL && at < memif->queues; at++) {
		struct memif_queue *from = memif->rx[at], *to = memif->tx[at];
		const struct memif_ring *rx = ring_of(memif, from, 1, address, size);
		const struct memif_ring *tx = ring_of(memif, to, 0, address, size);

		/* A client in its handshake has nothing in its rings, so the memory of another is not taken for its. */
		if (rx != NULL && tx != NULL && rx->head != from->last_tail) {
			empty_ring(from, rx);
			empty_ring(to, tx);
		}
	}
}

/* Found before the C library's, as above. Bursts that begin afterwards see that the port is not connected. */
int munmap(void *address, size_t size)
{
	if (rte_thread_is_intr()) {
		for (size_t port = 0; port < RTE_MAX_ETHPORTS; port++) {
			struct memif *memif = &memifs[port];

			if (atomic_load(&memif->used) && !is_up(memif->port)) {
				bool before = keep_out(memif);

				give_back(memif, address, size);
				atomic_store(&memif->closed, before);
			}
		}
	}
	return (int)syscall(SYS_munmap, address, size);
}

static int start(struct memif *memif)
{
	int failed = rte_eth_dev_start(memif->port);

	if (!failed) {
		memif->rx = rte_eth_fp_ops[memif->port].rxq.data;
		memif->tx = rte_eth_fp_ops[memif->port].txq.data;
	}
	return failed;
}

static void memif_tick(void *argument)
{
	struct memif *memif = argument;

	if (memif->started && is_up(memif->port)) {
		/* When it goes down, the server is gone. */
		memif->patience = 0;
	} else if (!memif->started || --memif->patience < 0) {
		keep_out(memif);
		if (memif->started)
			(void)rte_eth_dev_stop(memif->port);
		memif->started = start(memif) == 0;
		memif->patience = MEMIF_PATIENCE;
		if (memif->started)
			atomic_store(&memif->closed, false);
	}
	(void)rte_eal_alarm_set(MEMIF_PERIOD_US, memif_tick, memif);
}

/* Before the first burst; a client goes on looking for its server. */
static int memif_start(uint16_t port, uint16_t queues, bool client)
{
	struct memif *memif = &memifs[port];
	int failed;

	memif->port = port;
	memif->queues = queues;
	memif->rx = memif->tx = NULL;
	failed = start(memif);
	if (failed && !client)
		return failed;
	memif->started = !failed;
	memif->patience = MEMIF_PATIENCE;
	atomic_store(&memif->inside, 0);
	atomic_store(&memif->closed, failed != 0);
	atomic_store(&memif->used, true);
	return client ? rte_eal_alarm_set(MEMIF_PERIOD_US, memif_tick, memif) : 0;
}

/* ---- environment ---------------------------------------------------------------------------------------------- */

static char log_text[8192];
static size_t log_length;
static int log_verbose;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

/* Keeps the newest text: a message about a failure quotes it. */
static ssize_t log_write(void *cookie, const char *text, size_t size)
{
	(void)cookie;
	pthread_mutex_lock(&log_lock);
	size_t keep = size < sizeof(log_text) ? size : sizeof(log_text);
	if (log_length + keep > sizeof(log_text)) {
		size_t drop = log_length + keep - sizeof(log_text);
		memmove(log_text, log_text + drop, log_length - drop);
		log_length -= drop;
	}
	memcpy(log_text + log_length, text + (size - keep), keep);
	log_length += keep;
	if (log_verbose)
		fwrite(text, 1, size, stderr);
	pthread_mutex_unlock(&log_lock);
	return (ssize_t)size;
}

size_t carrack_log_take(char *out, size_t size)
{
	pthread_mutex_lock(&log_lock);
	size_t taken = log_length < size ? log_length : size;
	memcpy(out, log_text + (log_length - taken), taken);
	log_length = 0;
	pthread_mutex_unlock(&log_lock);
	return taken;
}

/* The XDP libraries' log line, into the same buffer. */
static int log_line(int level, const char *format, va_list arguments)
{
	char line[512];
	int length = vsnprintf(line, sizeof(line), format, arguments);

	(void)level;
	if (length > 0)
		log_write(NULL, line, (size_t)length < sizeof(line) ? (size_t)length : sizeof(line) - 1);
	return length;
}

typedef int (*log_function)(int level, const char *format, va_list arguments);

/* The AF_XDP driver brings libxdp and libbpf along, which otherwise write to the standard error output. */
static void quieten(const char *library, const char *setter)
{
	void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
	log_function (*set)(log_function);

	if (handle == NULL)
		return;
	*(void **)&set = dlsym(handle, setter);
	if (set != NULL)
		set(log_line);
	dlclose(handle);
}

int carrack_eal_init(int argc, char **argv, int verbose)
{
	cookie_io_functions_t functions = { .write = log_write };
	FILE *stream = fopencookie(NULL, "w", functions);

	log_verbose = verbose;
	if (stream == NULL)
		return -ENOMEM;
	setvbuf(stream, NULL, _IOLBF, 0);
	rte_openlog_stream(stream);
	if (rte_eal_init(argc, argv) < 0)
		return rte_errno > 0 ? -rte_errno : -EINVAL;
	quieten("libxdp.so.1", "libxdp_set_print");
	quieten("libbpf.so.1", "libbpf_set_print");
	quieten("libbpf.so.0", "libbpf_set_print");
	return 0;
}

int carrack_thread_register(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

void carrack_thread_unregister(void)
{
	rte_thread_unregister();
}

const char *carrack_dpdk_version(void)
{
	return rte_version();
}

/* ---- frames --------------------------------------------------------------------------------------------------- */

static inline void frame_of(struct rte_mbuf *m, uint16_t index, struct carrack_frame *out)
{
	out->data = rte_pktmbuf_mtod(m, uint8_t *);
	out->len = m->data_len;
	out->headroom = m->data_off;
	out->tailroom = (uint16_t)(m->buf_len - m->data_off - m->data_len);
	out->port = index;
	out->cookie = m;
}

static inline struct rte_mbuf *mbuf_of(const struct carrack_frame *frame)
{
	struct rte_mbuf *m = frame->cookie;

	m->data_off = frame->headroom;
	m->data_len = frame->len;
	m->pkt_len = frame->len;
	m->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
	return m;
}

void *carrack_pool_create(const char *name, uint32_t frames, uint32_t cache, uint16_t frame_bytes)
{
	return rte_pktmbuf_pool_create(name, frames, cache, 0, RTE_PKTMBUF_HEADROOM + frame_bytes, SOCKET_ID_ANY);
}

uint32_t carrack_pool_available(const void *pool)
{
	return rte_mempool_avail_count(pool);
}

int carrack_frame_alloc(void *pool, struct carrack_frame *out)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);

	if (m == NULL)
		return -ENOBUFS;
	frame_of(m, 0, out);
	return 0;
}

void carrack_frame_free(const struct carrack_frame *frames, size_t count)
{
	struct rte_mbuf *burst[BURST_MAX];

	while (count > 0) {
		unsigned int n = count < BURST_MAX ? (unsigned int)count : BURST_MAX;

		for (unsigned int i = 0; i < n; i++)
			burst[i] = frames[i].cookie;
		rte_pktmbuf_free_bulk(burst, n);
		frames += n;
		count -= n;
	}
}

/* ---- ports ---------------------------------------------------------------------------------------------------- */

int carrack_port_attach(const char *bus, const char *name, const char *arguments, uint16_t *port)
{
	int failed;

	/* A physical port named in the environment's list is there already. */
	if (rte_eth_dev_get_port_by_name(name, port) == 0)
		return 0;
	failed = rte_eal_hotplug_add(bus, name, arguments);
	if (failed)
		return failed;
	return rte_eth_dev_get_port_by_name(name, port);
}

static bool is_memif(const struct rte_eth_dev_info *info)
{
	return strcmp(info->driver_name, "net_memif") == 0;
}

static uint16_t within(uint16_t wanted, const struct rte_eth_desc_lim *limits)
{
	if (limits->nb_max > 0 && wanted > limits->nb_max)
		wanted = limits->nb_max;
	if (wanted < limits->nb_min)
		wanted = limits->nb_min;
	if (limits->nb_align > 1)
		wanted = (uint16_t)(wanted - wanted % limits->nb_align);
	return wanted;
}

static int configure(uint16_t port, const struct carrack_port_options *options, const struct rte_eth_dev_info *info,
		     bool *is_by_address)
{
	uint8_t key[STEER_KEY_MAX];
	struct rte_eth_conf conf;
	int failed;

	memset(&conf, 0, sizeof(conf));
	if (options->mtu > RTE_ETHER_MTU)
		conf.rxmode.mtu = options->mtu;
	*is_by_address = steer_configure(options, info, key, &conf);
	/* Every frame comes from one pool and has one reference, which some drivers send faster. */
	conf.txmode.offloads = info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	failed = rte_eth_dev_configure(port, options->queues, options->queues, &conf);
	if (!failed || !*is_by_address)
		return failed;
	/* Offered and refused all the same: better spread as the device likes than by one queue. */
	*is_by_address = false;
	conf.rx_adv_conf.rss_conf = (struct rte_eth_rss_conf){
		.rss_hf = info->flow_type_rss_offloads & RTE_ETH_RSS_IP,
	};
	return rte_eth_dev_configure(port, options->queues, options->queues, &conf);
}

static int setup_queues(uint16_t port, const struct carrack_port_options *options,
			const struct rte_eth_dev_info *info, void *pool)
{
	uint16_t rx = within(options->rx_descriptors, &info->rx_desc_lim);
	uint16_t tx = within(options->tx_descriptors, &info->tx_desc_lim);
	unsigned int socket = (unsigned int)rte_eth_dev_socket_id(port);
	int failed = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);

	for (uint16_t queue = 0; queue < options->queues && !failed; queue++) {
		failed = rte_eth_rx_queue_setup(port, queue, rx, socket, NULL, pool);
		if (!failed)
			failed = rte_eth_tx_queue_setup(port, queue, tx, socket, NULL);
	}
	return failed;
}

int carrack_port_start(uint16_t port, struct carrack_port_options *options, void *pool)
{
	struct rte_eth_dev_info info;
	bool is_by_address = false;
	int failed = rte_eth_dev_info_get(port, &info);

	if (failed)
		return failed;
	if (options->queues > info.max_rx_queues || options->queues > info.max_tx_queues)
		return -ERANGE;
	failed = configure(port, options, &info, &is_by_address);
	if (!failed)
		failed = setup_queues(port, options, &info, pool);
	if (!failed && options->mtu > 0)
		failed = rte_eth_dev_set_mtu(port, options->mtu);
	if (failed == -ENOTSUP)
		failed = 0;
	if (!failed)
		failed = is_memif(&info) ? memif_start(port, options->queues, options->client) : rte_eth_dev_start(port);
	options->spread = CARRACK_SPREAD_NOT;
	if (!failed && options->queues > 1 && (info.flow_type_rss_offloads & RTE_ETH_RSS_IP) != 0)
		options->spread = steer_started(port, options, &info, is_by_address) ? CARRACK_SPREAD_AS_ASKED
										     : CARRACK_SPREAD_ANYHOW;
	/* Not every driver can; those start from zero. */
	if (!failed)
		(void)rte_eth_stats_reset(port);
	if (!failed && options->promiscuous) {
		failed = rte_eth_promiscuous_enable(port);
		if (failed == -ENOTSUP)
			failed = 0;
	}
	return failed;
}

static int close_now(uint16_t port, const char *bus, const char *name)
{
	int failed = rte_eth_dev_stop(port);
	int not_closed = rte_eth_dev_close(port);
	int not_removed = rte_eal_hotplug_remove(bus, name);

	return failed ? failed : not_closed ? not_closed : not_removed;
}

struct closing {
	uint16_t port;
	const char *bus;
	const char *name;
	int result;
	sem_t done;
};

static void close_on_interrupt_thread(void *argument)
{
	struct closing *closing = argument;

	(void)rte_eal_alarm_cancel(memif_tick, &memifs[closing->port]);
	atomic_store(&memifs[closing->port].used, false);
	closing->result = close_now(closing->port, closing->bus, closing->name);
	sem_post(&closing->done);
}

int carrack_port_close(uint16_t port, const char *bus, const char *name)
{
	struct rte_eth_dev_info info;
	struct closing closing = { .port = port, .bus = bus, .name = name };

	/* DPDK's interrupt thread handles a memif's control socket, without a lock against closing: when a peer
	 * disconnects just then, it works on freed memory. Closing on that very thread cannot overlap. */
	if (rte_eth_dev_info_get(port, &info) == 0 && is_memif(&info) &&
	    sem_init(&closing.done, 0, 0) == 0 && rte_eal_alarm_set(1, close_on_interrupt_thread, &closing) == 0) {
		while (sem_wait(&closing.done) != 0)
			;
		sem_destroy(&closing.done);
		return closing.result;
	}
	return close_now(port, bus, name);
}

int carrack_port_link(uint16_t port, struct carrack_link *out)
{
	struct rte_ether_addr mac;
	struct rte_eth_link link;
	int failed;

	memset(out, 0, sizeof(*out));
	memset(&link, 0, sizeof(link));
	failed = rte_eth_macaddr_get(port, &mac);
	if (failed)
		return failed;
	memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
	failed = rte_eth_dev_get_mtu(port, &out->mtu);
	if (failed)
		return failed;
	failed = rte_eth_link_get_nowait(port, &link);
	if (failed)
		return failed;
	out->up = link.link_status == RTE_ETH_LINK_UP;
	if (link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
		out->speed_mbps = link.link_speed;
	return 0;
}

int carrack_port_stats(uint16_t port, struct carrack_stats *out)
{
	struct rte_eth_stats stats;
	int failed = rte_eth_stats_get(port, &stats);

	if (failed)
		return failed;
	out->rx_packets = stats.ipackets;
	out->rx_bytes = stats.ibytes;
	out->tx_packets = stats.opackets;
	out->tx_bytes = stats.obytes;
	out->rx_missed = stats.imissed;
	out->rx_errors = stats.ierrors;
	out->rx_nombuf = stats.rx_nombuf;
	out->tx_errors = stats.oerrors;
	return 0;
}

/* ---- bursts --------------------------------------------------------------------------------------------------- */

/* Makes one segment of many, and puts back a VLAN tag the driver has taken out. */
static __rte_noinline int make_plain(struct rte_mbuf **m)
{
	if (rte_pktmbuf_linearize(*m) < 0)
		return -1;
	if (((*m)->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0 && rte_vlan_insert(m) != 0)
		return -1;
	return 0;
}

uint16_t carrack_rx(uint16_t port, uint16_t queue, uint16_t index, struct carrack_frame *out, uint16_t max,
		    struct carrack_rx_drops *drops)
{
	struct rte_mbuf *burst[BURST_MAX];
	uint16_t kept = 0;
	uint16_t n;

	if (!enter(port))
		return 0;
	n = rte_eth_rx_burst(port, queue, burst, max < BURST_MAX ? max : BURST_MAX);
	leave(port);

	for (uint16_t i = 0; i < n; i++) {
		struct rte_mbuf *m = burst[i];

		if (unlikely(m->nb_segs != 1 || (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0)) {
			if (make_plain(&m) != 0) {
				rte_pktmbuf_free(m);
				drops->packets++;
				continue;
			}
		}
		frame_of(m, index, &out[kept++]);
	}
	return kept;
}

uint16_t carrack_tx(uint16_t port, uint16_t queue, const struct carrack_frame *frames, uint16_t count)
{
	struct rte_mbuf *burst[BURST_MAX];
	uint16_t sent = 0;

	if (!enter(port))
		return 0;
	while (sent < count) {
		uint16_t n = count - sent < BURST_MAX ? (uint16_t)(count - sent) : BURST_MAX;

		for (uint16_t i = 0; i < n; i++)
			burst[i] = mbuf_of(&frames[sent + i]);
		uint16_t taken = rte_eth_tx_burst(port, queue, burst, n);
		sent += taken;
		if (taken < n)
			break;
	}
	leave(port);
	return sent;
}
