/*
 * What a BGP speaker in C does with the library. `vectors.h` is made of the examples of RFC 8608. Ends with 0, or says which
 * line was not as it should be.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holdfast_bgpsec.h"
#include "vectors.h"

#define CHECK(what) ((what) ? (void)0 : fail(__LINE__, #what))
#define ENDS(call, code) ends((call), (code), __LINE__, #call)

/* Changes of the table, and verdicts, while both go on. */
enum { CHANGES = 40, VERDICTS = 20 };

static void fail(int line, const char *what)
{
	fprintf(stderr, "line %d: %s\n", line, what);
	exit(1);
}

static void ends(enum hf_bgpsec_code got, enum hf_bgpsec_code wanted, int line, const char *what)
{
	if (got == wanted)
		return;
	fprintf(stderr, "line %d: %s: %d (%s), not %d (%s)\n", line, what, got, hf_bgpsec_strerror(got), wanted,
	    hf_bgpsec_strerror(wanted));
	exit(1);
}

static struct hf_bgpsec_table *table_with(const struct router *from, size_t count, size_t remembered)
{
	struct hf_bgpsec_table *table;
	struct hf_bgpsec_applied applied;
	size_t before = 9, after = 9;

	ENDS(hf_bgpsec_table_new(remembered, &table), HF_BGPSEC_OK);
	for (size_t i = 0; i < count; i++)
		ENDS(hf_bgpsec_table_add(table, from[i].asn, from[i].ski, from[i].spki.at, from[i].spki.length),
		    HF_BGPSEC_OK);
	/* Nothing is there before the commit. */
	ENDS(hf_bgpsec_table_count(table, &before), HF_BGPSEC_OK);
	ENDS(hf_bgpsec_table_commit(table, &applied), HF_BGPSEC_OK);
	ENDS(hf_bgpsec_table_count(table, &after), HF_BGPSEC_OK);
	CHECK(before == 0 && after == count && applied.changed == count);
	CHECK(applied.duplicates == 0 && applied.unknown == 0);
	return table;
}

static struct hf_bgpsec_route route_of(const struct update *update)
{
	struct hf_bgpsec_route route = { update->afi, update->safi, update->nlri.at, update->nlri.length, update->target };

	return route;
}

static struct hf_bgpsec_verdict verdict_on(const struct hf_bgpsec_table *table, const uint8_t *path, size_t length,
    struct hf_bgpsec_route route)
{
	struct hf_bgpsec_verdict verdict;

	memset(&verdict, 0xff, sizeof(verdict));
	ENDS(hf_bgpsec_validate(table, path, length, &route, &verdict), HF_BGPSEC_OK);
	return verdict;
}

static void the_examples_of_rfc_8608_are_valid(void)
{
	struct hf_bgpsec_table *table = table_with(routers, ROUTERS, 16);
	uint8_t as_path[64];
	size_t length;

	for (size_t i = 0; i < UPDATES; i++) {
		const struct update *update = &updates[i];
		struct hf_bgpsec_ingress ingress = { .peer_as = 65536, .own_as = update->target, .reachable = 1 };

		ENDS(hf_bgpsec_check(update->path.at, update->path.length, &ingress), HF_BGPSEC_OK);
		/* Verified, and remembered. */
		for (int again = 0; again < 2; again++) {
			struct hf_bgpsec_verdict verdict =
			    verdict_on(table, update->path.at, update->path.length, route_of(update));
			CHECK(verdict.state == HF_BGPSEC_VALID && verdict.reason == HF_BGPSEC_NO_REASON);
		}
		/* An AS_SEQUENCE of 65536 and 64496. */
		static const uint8_t wanted[] = { 2, 2, 0, 1, 0, 0, 0, 0, 0xfb, 0xf0 };
		ENDS(hf_bgpsec_as_path(update->path.at, update->path.length, as_path, sizeof(as_path), &length), HF_BGPSEC_OK);
		CHECK(length == sizeof(wanted) && memcmp(as_path, wanted, length) == 0);
	}
	hf_bgpsec_table_free(table);
}

static void what_is_not_valid_says_where(void)
{
	const struct update *update = &updates[0];
	struct hf_bgpsec_table *both = table_with(routers, ROUTERS, 0);
	struct hf_bgpsec_table *none = table_with(NULL, 0, 0);
	struct hf_bgpsec_route route = route_of(update);
	struct hf_bgpsec_verdict verdict;
	struct router odd = routers[0];
	uint8_t path[512];

	/* The route was for somebody else. */
	route.target_as++;
	verdict = verdict_on(both, update->path.at, update->path.length, route);
	CHECK(verdict.state == HF_BGPSEC_NOT_VALID && verdict.reason == HF_BGPSEC_BAD_SIGNATURE);
	CHECK(verdict.hop == 0 && verdict.asn == 65536 && verdict.suite == 1);
	CHECK(memcmp(verdict.ski, routers[1].ski, HF_BGPSEC_SKI) == 0);
	route.target_as--;

	/* Nobody's key is known; only the older one is; the older one is no key. */
	verdict = verdict_on(none, update->path.at, update->path.length, route);
	CHECK(verdict.state == HF_BGPSEC_NOT_VALID && verdict.reason == HF_BGPSEC_NO_KEY && verdict.hop == 0);
	ENDS(hf_bgpsec_table_add(none, routers[1].asn, routers[1].ski, routers[1].spki.at, routers[1].spki.length),
	    HF_BGPSEC_OK);
	ENDS(hf_bgpsec_table_add(none, odd.asn, odd.ski, NULL, 0), HF_BGPSEC_OK);
	ENDS(hf_bgpsec_table_commit(none, NULL), HF_BGPSEC_OK);
	verdict = verdict_on(none, update->path.at, update->path.length, route);
	CHECK(verdict.reason == HF_BGPSEC_UNUSABLE_KEY && verdict.hop == 1 && verdict.asn == 64496);

	/* A suite that nobody knows is no reason. The third octet of the block is behind a length and 6 octets a hop. */
	CHECK(update->path.length <= sizeof(path));
	memcpy(path, update->path.at, update->path.length);
	path[2 + 2 * 6 + 2] = 0xfb;
	CHECK(verdict_on(both, path, update->path.length, route).state == HF_BGPSEC_UNSUPPORTED);
	hf_bgpsec_table_free(both);
	hf_bgpsec_table_free(none);
}

static void what_is_wrong_before_any_signature_has_its_code(void)
{
	const struct update *update = &updates[0];
	const size_t length = update->path.length;
	struct hf_bgpsec_ingress fine = { .peer_as = 65536, .own_as = update->target, .reachable = 1 }, wrong;
	uint8_t path[512];

#define REFUSED(field, value, code) \
	(wrong = fine, wrong.field = (value), ENDS(hf_bgpsec_check(update->path.at, length, &wrong), (code)))
	REFUSED(peer_as, 1, HF_BGPSEC_NOT_THE_PEER);
	REFUSED(as_path, 1, HF_BGPSEC_AS_PATH);
	REFUSED(in_confederation, 255, HF_BGPSEC_NO_CONFED_SEGMENT);
	REFUSED(own_as, 64496, HF_BGPSEC_LOOP);
	REFUSED(outside_mp_reach, 1, HF_BGPSEC_OUTSIDE_MP_REACH);
	REFUSED(reachable, 2, HF_BGPSEC_ROUTES);
	REFUSED(most_hops, 1, HF_BGPSEC_TOO_MANY_HOPS);
#undef REFUSED

	memcpy(path, update->path.at, length);
	path[2] = 0;
	ENDS(hf_bgpsec_check(path, length, &fine), HF_BGPSEC_PCOUNT_ZERO);
	fine.pcount_zero = 1;
	ENDS(hf_bgpsec_check(path, length, &fine), HF_BGPSEC_OK);
	path[3] = 0x80;
	ENDS(hf_bgpsec_check(path, length, &fine), HF_BGPSEC_CONFED_SEGMENT);
	path[2 + 2 * 6 + 2] = 255;
	ENDS(hf_bgpsec_check(path, length, &fine), HF_BGPSEC_RESERVED_SUITE);
	ENDS(hf_bgpsec_check(NULL, 0, &fine), HF_BGPSEC_SECURE_PATH_LENGTH);
	ENDS(hf_bgpsec_check(path, 2 + 2 * 6, &fine), HF_BGPSEC_NO_BLOCK);
	/* All that is shorter can be no path; valgrind sees whoever reads behind the end. */
	for (size_t cut = 0; cut < length; cut++) {
		uint8_t *copy = malloc(cut + !cut);
		CHECK(copy != NULL);
		memcpy(copy, update->path.at, cut);
		CHECK(hf_bgpsec_check(copy, cut, &fine) != HF_BGPSEC_OK);
		free(copy);
	}
}

static void what_is_signed_is_valid(void)
{
	struct hf_bgpsec_signer *first, *second;
	struct hf_bgpsec_table *table = table_with(NULL, 0, 0);
	static const uint8_t prefix[] = { 23, 192, 0, 3 }, same[] = { 23, 192, 0, 2 };
	struct hf_bgpsec_route route = { 1, 1, prefix, sizeof(prefix), 65536 };
	uint8_t spki[128], ski[HF_BGPSEC_SKI], one[HF_BGPSEC_MOST_HOP + 5], two[2 * HF_BGPSEC_MOST_HOP + 5], left[128];
	size_t spki_len, one_len, two_len, left_len;

	/* Both forms of a key are the key; the second router has a new one. */
	ENDS(hf_bgpsec_signer_new(64496, routers[0].sec1.at, routers[0].sec1.length, &first), HF_BGPSEC_OK);
	hf_bgpsec_signer_free(first);
	ENDS(hf_bgpsec_signer_new(64496, routers[0].pkcs8.at, routers[0].pkcs8.length, &first), HF_BGPSEC_OK);
	ENDS(hf_bgpsec_signer_ski(first, ski), HF_BGPSEC_OK);
	CHECK(memcmp(ski, routers[0].ski, sizeof(ski)) == 0);
	ENDS(hf_bgpsec_signer_generate(65536, &second), HF_BGPSEC_OK);

	const struct hf_bgpsec_signer *signers[] = { first, second };
	for (int i = 0; i < 2; i++) {
		ENDS(hf_bgpsec_signer_ski(signers[i], ski), HF_BGPSEC_OK);
		ENDS(hf_bgpsec_signer_spki(signers[i], spki, sizeof(spki), &spki_len), HF_BGPSEC_OK);
		ENDS(hf_bgpsec_table_add(table, i ? 65536 : 64496, ski, spki, spki_len), HF_BGPSEC_OK);
	}
	ENDS(hf_bgpsec_table_commit(table, NULL), HF_BGPSEC_OK);

	/* Without room it says how much is wanted, and that is enough. */
	ENDS(hf_bgpsec_sign(first, NULL, 0, 1, 0, &route, NULL, 0, &one_len), HF_BGPSEC_ROOM);
	CHECK(one_len == sizeof(one));
	ENDS(hf_bgpsec_sign(first, NULL, 0, 1, 0, &route, one, one_len, &one_len), HF_BGPSEC_OK);
	CHECK(verdict_on(table, one, one_len, route).state == HF_BGPSEC_VALID);
	route.target_as = 65537;
	ENDS(hf_bgpsec_sign(second, one, one_len, 3, 0x80, &route, two, one_len, &two_len), HF_BGPSEC_ROOM);
	CHECK(two_len == one_len + HF_BGPSEC_MOST_HOP);
	ENDS(hf_bgpsec_sign(second, one, one_len, 3, 0x80, &route, two, two_len, &two_len), HF_BGPSEC_OK);
	/* What is behind the 23 bits of the prefix is nobody's. */
	route.nlri = same;
	CHECK(verdict_on(table, two, two_len, route).state == HF_BGPSEC_VALID);
	/* The second one was inside a confederation. */
	ENDS(hf_bgpsec_leave_confederation(two, two_len, left, sizeof(left), &left_len), HF_BGPSEC_OK);
	CHECK(left_len == one_len && memcmp(left, one, one_len) == 0);

	/* A suite that the signer does not have. */
	one[2 + 6 + 2] = 0xfb;
	ENDS(hf_bgpsec_sign(second, one, one_len, 1, 0, &route, two, sizeof(two), &two_len), HF_BGPSEC_UNSIGNED);
	hf_bgpsec_signer_free(first);
	hf_bgpsec_signer_free(second);
	hf_bgpsec_table_free(table);
}

static void bad_arguments_are_said_to_be(void)
{
	const struct update *update = &updates[0];
	const struct router *router = &routers[0];
	struct hf_bgpsec_table *table = table_with(routers, 1, 0), *no_table = table;
	struct hf_bgpsec_signer *signer, *no_signer;
	struct hf_bgpsec_route fine = route_of(update), route = fine;
	struct hf_bgpsec_ingress ingress = { .peer_as = 65536, .own_as = update->target, .reachable = 1 };
	struct hf_bgpsec_verdict verdict;
	struct hf_bgpsec_applied applied;
	uint8_t out[256];
	size_t length;

	ENDS(hf_bgpsec_table_new(0, NULL), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_table_new((size_t)HF_BGPSEC_MOST_REMEMBERED + 1, &no_table), HF_BGPSEC_LENGTH);
	CHECK(no_table == NULL);
	ENDS(hf_bgpsec_table_add(NULL, 1, router->ski, router->spki.at, 91), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_table_add(table, 1, NULL, router->spki.at, 91), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_table_add(table, 1, router->ski, NULL, 91), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_table_remove(table, 1, router->ski, router->spki.at, HF_BGPSEC_MOST_SPKI + 1), HF_BGPSEC_LENGTH);
	ENDS(hf_bgpsec_table_commit(NULL, &applied), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_table_count(NULL, &length), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_table_count(table, NULL), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_check(NULL, 9, &ingress), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_check(update->path.at, update->path.length, NULL), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_check(update->path.at, SIZE_MAX, &ingress), HF_BGPSEC_LENGTH);

	/* There and not there: what is known, twice, and what is not. */
	ENDS(hf_bgpsec_table_add(table, router->asn, router->ski, router->spki.at, router->spki.length), HF_BGPSEC_OK);
	ENDS(hf_bgpsec_table_remove(table, 1, router->ski, router->spki.at, router->spki.length), HF_BGPSEC_OK);
	ENDS(hf_bgpsec_table_commit(table, &applied), HF_BGPSEC_OK);
	CHECK(applied.changed == 0 && applied.duplicates == 1 && applied.unknown == 1);

#define JUDGE(path, length) hf_bgpsec_validate(table, (path), (length), &route, &verdict)
	ENDS(hf_bgpsec_validate(table, update->path.at, update->path.length, &route, NULL), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_validate(NULL, update->path.at, update->path.length, &route, &verdict), HF_BGPSEC_NULL);
	CHECK(verdict.state == HF_BGPSEC_NOT_JUDGED);
	ENDS(hf_bgpsec_validate(table, update->path.at, update->path.length, NULL, &verdict), HF_BGPSEC_NULL);
	ENDS(JUDGE(NULL, 1), HF_BGPSEC_NULL);
	ENDS(JUDGE(update->path.at, update->path.length - 1), HF_BGPSEC_BLOCK_LENGTH);
	route.afi = 3;
	ENDS(JUDGE(update->path.at, update->path.length), HF_BGPSEC_AFI);
	/* An octet too few, too many for the length, too many for an address, a length beyond it, none. */
	static const uint8_t prefixes[][6] = { { 24, 192, 0 }, { 16, 192, 0, 2 }, { 32, 1, 2, 3, 4, 5 }, { 33, 1, 2, 3, 4, 5 }, { 0 } };
	static const size_t lengths[] = { 3, 4, 6, 6, 0 };
	route = fine;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		route.nlri = prefixes[i];
		route.nlri_len = lengths[i];
		ENDS(JUDGE(update->path.at, update->path.length), HF_BGPSEC_NLRI);
	}
#undef JUDGE

	ENDS(hf_bgpsec_signer_new(1, router->sec1.at, router->sec1.length - 1, &no_signer), HF_BGPSEC_PRIVATE_KEY);
	CHECK(no_signer == NULL);
	ENDS(hf_bgpsec_signer_new(1, NULL, 0, &no_signer), HF_BGPSEC_PRIVATE_KEY);
	ENDS(hf_bgpsec_signer_new(1, router->sec1.at, 100000, &no_signer), HF_BGPSEC_LENGTH);
	ENDS(hf_bgpsec_signer_new(1, router->sec1.at, router->sec1.length, NULL), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_signer_generate(1, NULL), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_signer_generate(1, &signer), HF_BGPSEC_OK);
	ENDS(hf_bgpsec_signer_ski(signer, NULL), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_signer_ski(NULL, out), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_signer_spki(signer, out, 90, &length), HF_BGPSEC_ROOM);
	CHECK(length == 91);
	ENDS(hf_bgpsec_signer_spki(signer, NULL, 91, &length), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_signer_spki(signer, out, sizeof(out), NULL), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_sign(NULL, NULL, 0, 1, 0, &fine, out, sizeof(out), &length), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_sign(signer, NULL, 0, 1, 0, NULL, out, sizeof(out), &length), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_sign(signer, NULL, 0, 1, 0, &fine, out, sizeof(out), NULL), HF_BGPSEC_NULL);
	ENDS(hf_bgpsec_sign(signer, update->path.at, 5, 1, 0, &fine, out, sizeof(out), &length), HF_BGPSEC_SECURE_PATH_LENGTH);
	ENDS(hf_bgpsec_as_path(update->path.at, update->path.length, out, 3, &length), HF_BGPSEC_ROOM);
	CHECK(length == 10);
	ENDS(hf_bgpsec_leave_confederation(update->path.at, 3, out, sizeof(out), &length), HF_BGPSEC_SECURE_PATH_LENGTH);

	CHECK(strcmp(hf_bgpsec_strerror(HF_BGPSEC_LOOP), "our AS is in the path") == 0);
	CHECK(strcmp(hf_bgpsec_strerror(-5), hf_bgpsec_strerror(4711)) == 0);
	CHECK(strcmp(hf_bgpsec_version(), VERSION) == 0);
	hf_bgpsec_signer_free(signer);
	hf_bgpsec_signer_free(NULL);
	hf_bgpsec_table_free(table);
	hf_bgpsec_table_free(NULL);
}

static void *change(void *argument)
{
	struct hf_bgpsec_table *table = argument;

	/* Both keys go, and come, as one. */
	for (int i = 0; i < CHANGES; i++) {
		for (size_t r = 0; r < ROUTERS; r++) {
			const struct router *router = &routers[r];
			ENDS((i % 2 ? hf_bgpsec_table_add : hf_bgpsec_table_remove)(table, router->asn, router->ski,
			    router->spki.at, router->spki.length), HF_BGPSEC_OK);
		}
		ENDS(hf_bgpsec_table_commit(table, NULL), HF_BGPSEC_OK);
	}
	return NULL;
}

static void *judge(void *argument)
{
	for (int i = 0; i < VERDICTS; i++) {
		const struct update *update = &updates[i % UPDATES];
		struct hf_bgpsec_verdict verdict =
		    verdict_on(argument, update->path.at, update->path.length, route_of(update));
		/* The newest hop is looked at first: without both keys it is the one that has none. */
		CHECK(verdict.state == HF_BGPSEC_VALID || (verdict.reason == HF_BGPSEC_NO_KEY && verdict.hop == 0));
	}
	return NULL;
}

static void threads_share_a_table(void)
{
	struct hf_bgpsec_table *table = table_with(routers, ROUTERS, 16);
	void *(*const work[])(void *) = { change, judge, judge };
	pthread_t threads[3];
	size_t count;

	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, work[i], table) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	ENDS(hf_bgpsec_table_count(table, &count), HF_BGPSEC_OK);
	CHECK(count == ROUTERS);
	hf_bgpsec_table_free(table);
}

int main(void)
{
	the_examples_of_rfc_8608_are_valid();
	what_is_not_valid_says_where();
	what_is_wrong_before_any_signature_has_its_code();
	what_is_signed_is_valid();
	bad_arguments_are_said_to_be();
	threads_share_a_table();
	return 0;
}
