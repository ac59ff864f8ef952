/* A stand-in for a network card that steers. Its functions have the names of DPDK's, and so are called in their place: they
 * offer more than the driver behind them has, note what they are asked for, and `card_queue` then chooses queues as a card
 * would that was asked the same. The hash is DPDK's own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_flow.h>
#include <rte_ip.h>
#include <rte_thash.h>

#define ONE_ADDRESS (RTE_ETH_RSS_L3_SRC_ONLY | RTE_ETH_RSS_L3_DST_ONLY)
#define TABLE_MAX 4096
#define KEY_MAX 256
#define RULES_MAX 4

/* What the next card has. */
struct card {
	bool offers_one_address;
	bool accepts_one_address;
	bool accepts_table;
	/* Of IPv4 packets, without a tag and with one. */
	bool accepts_rules;
	bool accepts_tagged_rules;
	uint16_t table_size;
	uint8_t key_bytes;
};

struct hash {
	uint64_t types;
	uint8_t key[KEY_MAX];
	bool is_set;
};

struct rule {
	struct hash hash;
	uint16_t queues[TABLE_MAX];
	uint32_t count;
	bool is_tagged;
};

static struct card card;
static struct hash hash;
static uint16_t table[TABLE_MAX];
static struct rule rules[RULES_MAX];
static unsigned int rule_count;

void card_insert(const struct card *other)
{
	card = *other;
	memset(&hash, 0, sizeof(hash));
	memset(table, 0, sizeof(table));
	memset(rules, 0, sizeof(rules));
	rule_count = 0;
}

static void set_hash(struct hash *hash, uint64_t types, const uint8_t *key, size_t bytes)
{
	hash->types = types;
	hash->is_set = key != NULL && bytes == card.key_bytes;
	memset(hash->key, 0, sizeof(hash->key));
	if (hash->is_set)
		memcpy(hash->key, key, bytes);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int rte_eth_dev_info_get(uint16_t port, struct rte_eth_dev_info *info)
{
	int failed = REAL(rte_eth_dev_info_get)(port, info);

	info->flow_type_rss_offloads = RTE_ETH_RSS_IP | (card.offers_one_address ? ONE_ADDRESS : 0);
	info->reta_size = card.table_size;
	info->hash_key_size = card.key_bytes;
	return failed;
}

int rte_eth_dev_configure(uint16_t port, uint16_t receive, uint16_t transmit, const struct rte_eth_conf *conf)
{
	const struct rte_eth_rss_conf *asked = &conf->rx_adv_conf.rss_conf;
	struct rte_eth_conf plain = *conf;

	if (!card.accepts_one_address && (asked->rss_hf & ONE_ADDRESS) != 0)
		return -EINVAL;
	if (conf->rxmode.mq_mode == RTE_ETH_MQ_RX_RSS)
		set_hash(&hash, asked->rss_hf, asked->rss_key, asked->rss_key_len);
	/* As drivers begin. */
	for (unsigned int i = 0; i < card.table_size && i < TABLE_MAX; i++)
		table[i] = (uint16_t)(i % receive);
	plain.rxmode.mq_mode = RTE_ETH_MQ_RX_NONE;
	memset(&plain.rx_adv_conf, 0, sizeof(plain.rx_adv_conf));
	return REAL(rte_eth_dev_configure)(port, receive, transmit, &plain);
}

int rte_eth_dev_rss_reta_update(uint16_t port, struct rte_eth_rss_reta_entry64 *groups, uint16_t size)
{
	(void)port;
	if (!card.accepts_table || size != card.table_size)
		return -EINVAL;
	for (unsigned int i = 0; i < size; i++) {
		const struct rte_eth_rss_reta_entry64 *group = &groups[i / RTE_ETH_RETA_GROUP_SIZE];

		if (group->mask >> (i % RTE_ETH_RETA_GROUP_SIZE) & 1)
			table[i] = group->reta[i % RTE_ETH_RETA_GROUP_SIZE];
	}
	return 0;
}

/* The action of a rule for all IPv4 packets, which is all that this card knows. */
static const struct rte_flow_action_rss *read_rule(const struct rte_flow_attr *attributes,
						   const struct rte_flow_item items[],
						   const struct rte_flow_action actions[], bool *is_tagged)
{
	if (!attributes->ingress || attributes->egress || (items++)->type != RTE_FLOW_ITEM_TYPE_ETH)
		return NULL;
	*is_tagged = items->type == RTE_FLOW_ITEM_TYPE_VLAN;
	items += *is_tagged;
	if (items[0].type != RTE_FLOW_ITEM_TYPE_IPV4 || items[1].type != RTE_FLOW_ITEM_TYPE_END ||
	    actions[0].type != RTE_FLOW_ACTION_TYPE_RSS || actions[1].type != RTE_FLOW_ACTION_TYPE_END)
		return NULL;
	return actions[0].conf;
}

int rte_flow_validate(uint16_t port, const struct rte_flow_attr *attributes, const struct rte_flow_item items[],
		      const struct rte_flow_action actions[], struct rte_flow_error *error)
{
	bool is_tagged = false;
	const struct rte_flow_action_rss *rss = read_rule(attributes, items, actions, &is_tagged);

	(void)port;
	(void)error;
	if (rss == NULL || !(is_tagged ? card.accepts_tagged_rules : card.accepts_rules))
		return -ENOTSUP;
	if (rss->func != RTE_ETH_HASH_FUNCTION_TOEPLITZ || rss->key_len != card.key_bytes || rss->level != 0 ||
	    rss->queue_num == 0 || rss->queue_num > TABLE_MAX)
		return -EINVAL;
	return 0;
}

struct rte_flow *rte_flow_create(uint16_t port, const struct rte_flow_attr *attributes,
				 const struct rte_flow_item items[], const struct rte_flow_action actions[],
				 struct rte_flow_error *error)
{
	bool is_tagged = false;
	const struct rte_flow_action_rss *rss = read_rule(attributes, items, actions, &is_tagged);
	struct rule *rule;

	if (rte_flow_validate(port, attributes, items, actions, error) != 0 || rule_count == RULES_MAX)
		return NULL;
	rule = &rules[rule_count++];
	set_hash(&rule->hash, rss->types, rss->key, rss->key_len);
	rule->is_tagged = is_tagged;
	rule->count = rss->queue_num;
	memcpy(rule->queues, rss->queue, rss->queue_num * sizeof(rss->queue[0]));
	return (struct rte_flow *)rule;
}

/* Cards that hash one address put it into their input alone, or leave the place of the other empty. */
static uint32_t reckon(const struct hash *hash, const struct rte_ipv4_hdr *head, bool in_place)
{
	uint32_t both[2] = { rte_be_to_cpu_32(head->src_addr), rte_be_to_cpu_32(head->dst_addr) };

	if ((hash->types & ONE_ADDRESS) == 0)
		return rte_softrss(both, 2, hash->key);
	both[(hash->types & RTE_ETH_RSS_L3_SRC_ONLY) != 0] = 0;
	if (in_place)
		return rte_softrss(both, 2, hash->key);
	both[0] |= both[1];
	return rte_softrss(both, 1, hash->key);
}

/* The queue a frame arrives in; -1 when it is spread by nothing that is known here. */
int card_queue(const uint8_t *frame, bool in_place)
{
	const struct rte_ether_hdr *link = (const void *)frame;
	bool is_tagged = link->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN);
	const struct rte_ipv4_hdr *head = (const void *)(frame + sizeof(*link) + (is_tagged ? RTE_VLAN_HLEN : 0));

	for (unsigned int i = 0; i < rule_count; i++)
		if (rules[i].is_tagged == is_tagged && (rules[i].hash.types & RTE_ETH_RSS_IPV4) != 0)
			return rules[i].queues[reckon(&rules[i].hash, head, in_place) % rules[i].count];
	if (!hash.is_set || (hash.types & RTE_ETH_RSS_IPV4) == 0)
		return -1;
	return table[reckon(&hash, head, in_place) % card.table_size];
}
