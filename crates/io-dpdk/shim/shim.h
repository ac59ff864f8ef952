/* The narrow waist between Carrack and DPDK: what DPDK keeps in inline functions and macros, as plain functions.
 * Every function may be called from any thread unless it says otherwise. Negative results are -errno. */
#ifndef CARRACK_DPDK_SHIM_H
#define CARRACK_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* Layout of the Rust type carrack_frame::Frame; both sides assert it. The cookie is the rte_mbuf. */
struct carrack_frame {
	uint8_t *data;
	uint16_t len;
	uint16_t headroom;
	uint16_t tailroom;
	uint16_t port;
	void *cookie;
};

/* What a receive queue dropped itself. */
struct carrack_rx_drops {
	uint64_t packets;
};

/* Which address decides the receive queue, where the device can be told. */
#define CARRACK_STEER_NOT 0
#define CARRACK_STEER_SOURCE 1
#define CARRACK_STEER_DESTINATION 2
#define CARRACK_STEERING_SLOTS 128

/* How packets come to the queues. */
#define CARRACK_SPREAD_NOT 0
#define CARRACK_SPREAD_ANYHOW 1
#define CARRACK_SPREAD_AS_ASKED 2

struct carrack_port_options {
	uint16_t queues;
	uint16_t rx_descriptors;
	uint16_t tx_descriptors;
	uint16_t mtu; /* 0: the device's own */
	int promiscuous;
	int client; /* the client of a memif: starts without its server, and connects as soon and as often as there is one */
	int steer_by; /* CARRACK_STEER_ */
	uint8_t steer_key[4]; /* of the Toeplitz hash, over and over */
	uint16_t steer_table[CARRACK_STEERING_SLOTS]; /* the queue for each value of the hash's lowest bits */
	int spread; /* out: CARRACK_SPREAD_ */
};

struct carrack_link {
	uint8_t mac[6];
	uint16_t mtu;
	uint32_t speed_mbps; /* 0: none or unknown */
	int up;
};

struct carrack_stats {
	uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
	uint64_t rx_missed, rx_errors, rx_nombuf, tx_errors;
};

/* Environment. The log goes to a buffer, and to the standard error output too when `verbose`. */
int carrack_eal_init(int argc, char **argv, int verbose);
size_t carrack_log_take(char *out, size_t size);
int carrack_thread_register(void);
void carrack_thread_unregister(void);
const char *carrack_dpdk_version(void);

/* The pool of mbufs. */
void *carrack_pool_create(const char *name, uint32_t frames, uint32_t cache, uint16_t frame_bytes);
uint32_t carrack_pool_available(const void *pool);
int carrack_frame_alloc(void *pool, struct carrack_frame *out);
void carrack_frame_free(const struct carrack_frame *frames, size_t count);

/* Ports. Not safe to call for one port from two threads at once. */
int carrack_port_attach(const char *bus, const char *name, const char *arguments, uint16_t *port);
int carrack_port_start(uint16_t port, struct carrack_port_options *options, void *pool);
int carrack_port_close(uint16_t port, const char *bus, const char *name);
int carrack_port_link(uint16_t port, struct carrack_link *out);
int carrack_port_stats(uint16_t port, struct carrack_stats *out);

/* Bursts of one queue. Not safe to call for one queue from two threads at once. */
uint16_t carrack_rx(uint16_t port, uint16_t queue, uint16_t index, struct carrack_frame *out, uint16_t max,
		    struct carrack_rx_drops *drops);
uint16_t carrack_tx(uint16_t port, uint16_t queue, const struct carrack_frame *frames, uint16_t count);

#endif
