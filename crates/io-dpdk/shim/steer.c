/* See steer.h. */
#include "steer.h"

#include <string.h>

#include <rte_flow.h>

#define SLOTS CARRACK_STEERING_SLOTS
/* The largest table of queues that is filled. */
#define TABLE_MAX 4096

static uint64_t one_address(const struct carrack_port_options *options)
{
	return options->steer_by == CARRACK_STEER_SOURCE ? RTE_ETH_RSS_L3_SRC_ONLY : RTE_ETH_RSS_L3_DST_ONLY;
}

static void repeat(const struct carrack_port_options *options, uint8_t *key, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		key[i] = options->steer_key[i % sizeof(options->steer_key)];
}

bool steer_configure(const struct carrack_port_options *options, const struct rte_eth_dev_info *info,
		     uint8_t key[STEER_KEY_MAX], struct rte_eth_conf *conf)
{
	uint64_t by_addresses = info->flow_type_rss_offloads & RTE_ETH_RSS_IP;

	if (options->queues < 2 || by_addresses == 0)
		return false;
	conf->rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	conf->rx_adv_conf.rss_conf.rss_hf = by_addresses;
	if (options->steer_by == CARRACK_STEER_NOT || (info->flow_type_rss_offloads & one_address(options)) == 0)
		return false;
	/* Entries of the table are numbered by the hash's lowest bits, whatever their number. */
	if (info->reta_size == 0 || info->reta_size % SLOTS != 0 || info->reta_size > TABLE_MAX ||
	    info->hash_key_size == 0 || info->hash_key_size > STEER_KEY_MAX)
		return false;
	repeat(options, key, info->hash_key_size);
	conf->rx_adv_conf.rss_conf.rss_hf |= one_address(options);
	conf->rx_adv_conf.rss_conf.rss_key = key;
	conf->rx_adv_conf.rss_conf.rss_key_len = info->hash_key_size;
	return true;
}

static bool set_table(uint16_t port, const struct carrack_port_options *options, uint16_t size)
{
	struct rte_eth_rss_reta_entry64 groups[TABLE_MAX / RTE_ETH_RETA_GROUP_SIZE];

	memset(groups, 0, sizeof(groups));
	for (unsigned int i = 0; i < size; i++) {
		struct rte_eth_rss_reta_entry64 *group = &groups[i / RTE_ETH_RETA_GROUP_SIZE];

		group->mask = UINT64_MAX;
		group->reta[i % RTE_ETH_RETA_GROUP_SIZE] = options->steer_table[i % SLOTS];
	}
	return rte_eth_dev_rss_reta_update(port, groups, size) == 0;
}

/* A rule for all IPv4 packets, behind a tag or not. */
static bool add_rule(uint16_t port, const struct carrack_port_options *options, uint16_t key_bytes, bool tagged)
{
	uint8_t key[STEER_KEY_MAX];
	struct rte_flow_action_rss rss = {
		.func = RTE_ETH_HASH_FUNCTION_TOEPLITZ,
		.types = RTE_ETH_RSS_IPV4 | one_address(options),
		.key_len = key_bytes,
		.key = key,
		.queue_num = SLOTS,
		.queue = options->steer_table,
	};
	struct rte_flow_attr all = { .ingress = 1 };
	struct rte_flow_item untagged_items[] = {
		{ .type = RTE_FLOW_ITEM_TYPE_ETH },
		{ .type = RTE_FLOW_ITEM_TYPE_IPV4 },
		{ .type = RTE_FLOW_ITEM_TYPE_END },
	};
	struct rte_flow_item tagged_items[] = {
		{ .type = RTE_FLOW_ITEM_TYPE_ETH },
		{ .type = RTE_FLOW_ITEM_TYPE_VLAN },
		{ .type = RTE_FLOW_ITEM_TYPE_IPV4 },
		{ .type = RTE_FLOW_ITEM_TYPE_END },
	};
	struct rte_flow_item *items = tagged ? tagged_items : untagged_items;
	struct rte_flow_action actions[] = {
		{ .type = RTE_FLOW_ACTION_TYPE_RSS, .conf = &rss },
		{ .type = RTE_FLOW_ACTION_TYPE_END },
	};
	struct rte_flow_error error;

	repeat(options, key, key_bytes);
	return rte_flow_validate(port, &all, items, actions, &error) == 0 &&
	       rte_flow_create(port, &all, items, actions, &error) != NULL;
}

bool steer_started(uint16_t port, const struct carrack_port_options *options, const struct rte_eth_dev_info *info,
		   bool is_by_address)
{
	if (options->queues < 2 || options->steer_by == CARRACK_STEER_NOT)
		return false;
	if (is_by_address)
		return set_table(port, options, info->reta_size);
	/* Drivers without a hash of theirs have none to give a key to. */
	if (info->hash_key_size == 0 || info->hash_key_size > STEER_KEY_MAX)
		return false;
	if (!add_rule(port, options, info->hash_key_size, false))
		return false;
	/* Tagged packets are spread as the device likes where it has no such rule. */
	(void)add_rule(port, options, info->hash_key_size, true);
	return true;
}
