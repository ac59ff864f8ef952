/* Asking a network card to spread packets over its queues by one of their addresses. */
#ifndef CARRACK_STEER_H
#define CARRACK_STEER_H

#include <stdbool.h>

#include <rte_ethdev.h>

#include "shim.h"

/* The longest key of a hash that cards have today is 52 bytes. */
#define STEER_KEY_MAX 128

/* Into `conf`, for as long as `key` lives: spreading by addresses, and by the one asked for where the device offers that
 * without a rule. True when it does. */
bool steer_configure(const struct carrack_port_options *options, const struct rte_eth_dev_info *info,
		     uint8_t key[STEER_KEY_MAX], struct rte_eth_conf *conf);

/* The rest, once the device runs: the table of queues, or a rule. `is_by_address` is what `steer_configure` said. True
 * when packets arrive where they were asked to. */
bool steer_started(uint16_t port, const struct carrack_port_options *options, const struct rte_eth_dev_info *info,
		   bool is_by_address);

#endif
