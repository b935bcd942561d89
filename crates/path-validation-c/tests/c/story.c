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
	REFUSED(most_pcount, 1, HF_BGPSEC_PCOUNTS);
	REFUSED(most_pcount, 2, HF_BGPSEC_OK);
	REFUSED(own_other, 64496, HF_BGPSEC_LOOP);
#undef REFUSED
	/* Whoever is in our AS has added no segment. */
	wrong = fine;
	wrong.peer_as = wrong.own_as;
	wrong.internal = 1;
	ENDS(hf_bgpsec_check(update->path.at, length, &wrong), HF_BGPSEC_OK);
	/* The same prefix in the classic field is let pass where that is allowed. */
	wrong = fine;
	wrong.outside_mp_reach = wrong.repeated_prefix = 1;
	ENDS(hf_bgpsec_check(update->path.at, length, &wrong), HF_BGPSEC_OUTSIDE_MP_REACH);
	wrong.outside_same = 1;
	ENDS(hf_bgpsec_check(update->path.at, length, &wrong), HF_BGPSEC_OK);
	wrong.repeated_prefix = 0;
	ENDS(hf_bgpsec_check(update->path.at, length, &wrong), HF_BGPSEC_OUTSIDE_MP_REACH);

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

static void each_part_of_a_path_can_be_read(void)
{
	static const uint32_t asns[] = { 65536, 64496 };

	for (size_t i = 0; i < UPDATES; i++) {
		const uint8_t *path = updates[i].path.at;
		const size_t length = updates[i].path.length;
		struct hf_bgpsec_parts parts;
		struct hf_bgpsec_segment segment;
		struct hf_bgpsec_signature signature;

		ENDS(hf_bgpsec_read(path, length, &parts), HF_BGPSEC_OK);
		CHECK(parts.segments == 2 && parts.blocks == 1 && parts.suites[0] == 1 && parts.suites[1] == 0);
		for (size_t hop = 0; hop < parts.segments; hop++) {
			ENDS(hf_bgpsec_segment_at(path, length, hop, &segment), HF_BGPSEC_OK);
			CHECK(segment.asn == asns[hop] && segment.pcount == 1 && segment.flags == 0);
			ENDS(hf_bgpsec_signature_at(path, length, 0, hop, &signature), HF_BGPSEC_OK);
			CHECK(signature.suite == 1 && memcmp(signature.ski, routers[!hop].ski, HF_BGPSEC_SKI) == 0);
			/* The octets are those of the path: the oldest signature is at its end. */
			CHECK(signature.octets[0] == 0x30 && signature.octets > path);
			if (hop == 1)
				CHECK(signature.octets + signature.octets_len == path + length);
		}
		ENDS(hf_bgpsec_segment_at(path, length, 2, &segment), HF_BGPSEC_NO_SUCH);
		ENDS(hf_bgpsec_signature_at(path, length, 0, 2, &signature), HF_BGPSEC_NO_SUCH);
		ENDS(hf_bgpsec_signature_at(path, length, 1, 0, &signature), HF_BGPSEC_NO_SUCH);
		ENDS(hf_bgpsec_signature_at(path, length, SIZE_MAX, 0, &signature), HF_BGPSEC_NO_SUCH);
		ENDS(hf_bgpsec_read(path, length - 1, &parts), HF_BGPSEC_BLOCK_LENGTH);
		CHECK(parts.segments == 0 && parts.blocks == 0);
		ENDS(hf_bgpsec_read(NULL, length, &parts), HF_BGPSEC_NULL);
		ENDS(hf_bgpsec_read(path, length, NULL), HF_BGPSEC_NULL);
		ENDS(hf_bgpsec_segment_at(path, length, 0, NULL), HF_BGPSEC_NULL);
		ENDS(hf_bgpsec_signature_at(path, length, 0, 0, NULL), HF_BGPSEC_NULL);
	}
}

static void the_suites_are_known(void)
{
	uint8_t suites[4];
	size_t count;

	ENDS(hf_bgpsec_suites(suites, sizeof(suites), &count), HF_BGPSEC_OK);
	CHECK(count == 1 && suites[0] == 1);
	ENDS(hf_bgpsec_suites(NULL, 0, &count), HF_BGPSEC_ROOM);
	CHECK(count == 1);
	ENDS(hf_bgpsec_suites(suites, sizeof(suites), NULL), HF_BGPSEC_NULL);
}

/* A device that gives out a signature that it has, and remembers what it was asked for. */
struct device {
	const uint8_t *signature;
	size_t length;
	int ends;
	size_t octets_len, digest_len;
};

static int sign_in_device(void *user, const struct hf_bgpsec_to_sign *what, uint8_t *signature, size_t capacity,
    size_t *signature_len)
{
	struct device *device = user;

	device->octets_len = what->octets_len;
	device->digest_len = what->digest_len;
	CHECK((what->digest == NULL) == (what->digest_len == 0));
	/* The first octet of the target AS. */
	CHECK(what->octets[0] == 0);
	if (device->length <= capacity)
		memcpy(signature, device->signature, device->length);
	*signature_len = device->length;
	return device->ends;
}

/* The examples are signed anew, by a device that knows their signatures. */
static void a_callback_signs(void)
{
	for (size_t i = 0; i < UPDATES; i++) {
		const struct update *update = &updates[i];
		uint8_t path[512];
		size_t length = 0, origin_octets = 0;

		for (size_t hop = 2; hop-- > 0;) {
			const struct router *router = &routers[!hop];
			struct hf_bgpsec_route route = route_of(update);
			struct hf_bgpsec_signature signature;
			struct hf_bgpsec_signer *signer;
			struct device device = { 0 };
			uint8_t longer[512], none[512], ski[HF_BGPSEC_SKI];
			size_t longer_len, wanted;

			route.target_as = hop ? 65536 : update->target;
			ENDS(hf_bgpsec_signature_at(update->path.at, update->path.length, 0, hop, &signature), HF_BGPSEC_OK);
			device.signature = signature.octets;
			device.length = signature.octets_len;
			ENDS(hf_bgpsec_signer_callback(router->asn, 1, router->ski, 72, sign_in_device, &device, &signer), HF_BGPSEC_OK);
			ENDS(hf_bgpsec_signer_ski(signer, ski), HF_BGPSEC_OK);
			CHECK(memcmp(ski, router->ski, sizeof(ski)) == 0);
			ENDS(hf_bgpsec_signer_spki(signer, longer, sizeof(longer), &longer_len), HF_BGPSEC_KEY_ELSEWHERE);
			/* Nobody is asked before there is room. */
			ENDS(hf_bgpsec_sign(signer, path, length, 1, 0, &route, longer, 10, &wanted), HF_BGPSEC_ROOM);
			CHECK(wanted == length + HF_BGPSEC_MOST_HOP + (length ? 0 : 5) && device.octets_len == 0);
			ENDS(hf_bgpsec_sign(signer, path, length, 1, 0, &route, longer, wanted, &longer_len), HF_BGPSEC_OK);
			CHECK(device.digest_len == 32);
			/* A segment, and the older signature with its SKI and length. */
			if (hop)
				origin_octets = device.octets_len;
			else
				CHECK(device.octets_len == origin_octets + 6 + 22 + device.length);

			/* What it will not sign, and what is none. */
			device.ends = 1;
			ENDS(hf_bgpsec_sign(signer, path, length, 1, 0, &route, none, sizeof(none), &wanted), HF_BGPSEC_CANNOT_SIGN);
			device.ends = 0;
			device.length = 73;
			ENDS(hf_bgpsec_sign(signer, path, length, 1, 0, &route, none, sizeof(none), &wanted), HF_BGPSEC_CANNOT_SIGN);
			device.length = 0;
			ENDS(hf_bgpsec_sign(signer, path, length, 1, 0, &route, none, sizeof(none), &wanted), HF_BGPSEC_CANNOT_SIGN);
			hf_bgpsec_signer_free(signer);
			memcpy(path, longer, longer_len);
			length = longer_len;
		}
		CHECK(length == update->path.length && memcmp(path, update->path.at, length) == 0);
	}
}

/* A path goes on in two suites, one of which the library only carries. */
static void two_signers_make_two_blocks(void)
{
	struct hf_bgpsec_table *table = table_with(routers, ROUTERS, 0);
	struct device device = { (const uint8_t[]){ 1, 2, 3 }, 3, 0, 0, 0 };
	struct hf_bgpsec_route route = route_of(&updates[0]);
	struct hf_bgpsec_signer *signers[3], *other;
	const struct hf_bgpsec_signer *used[3];
	struct hf_bgpsec_signature signature;
	struct hf_bgpsec_parts parts;
	uint8_t one[512], two[512];
	size_t one_len, two_len;

	/* A device has the key that another AS has as well. */
	for (int i = 0; i < 2; i++)
		ENDS(hf_bgpsec_signer_callback(routers[i].asn, 0xfb, routers[i].ski, 100, sign_in_device, &device, &signers[i]), HF_BGPSEC_OK);
	ENDS(hf_bgpsec_signer_new(routers[0].asn, routers[0].sec1.at, routers[0].sec1.length, &signers[2]), HF_BGPSEC_OK);
	used[0] = signers[2];
	used[1] = signers[0];
	used[2] = signers[1];
	ENDS(hf_bgpsec_sign_all(used, 2, NULL, 0, 1, 0, &route, NULL, 0, &one_len), HF_BGPSEC_ROOM);
	CHECK(one_len == 2 + 6 + (3 + 22 + 72) + (3 + 22 + 100));
	ENDS(hf_bgpsec_sign_all(used, 2, NULL, 0, 1, 0, &route, one, one_len, &one_len), HF_BGPSEC_OK);
	CHECK(device.octets_len == 18 && device.digest_len == 0);
	ENDS(hf_bgpsec_read(one, one_len, &parts), HF_BGPSEC_OK);
	CHECK(parts.segments == 1 && parts.blocks == 2 && parts.suites[0] == 1 && parts.suites[1] == 0xfb);
	ENDS(hf_bgpsec_signature_at(one, one_len, 1, 0, &signature), HF_BGPSEC_OK);
	CHECK(signature.suite == 0xfb && signature.octets_len == 3 && memcmp(signature.octets, device.signature, 3) == 0);
	CHECK(verdict_on(table, one, one_len, route).state == HF_BGPSEC_VALID);

	/* Who is alone leaves the other block out. */
	ENDS(hf_bgpsec_sign_all(&used[2], 1, one, one_len, 1, 0, &route, two, sizeof(two), &two_len), HF_BGPSEC_OK);
	ENDS(hf_bgpsec_read(two, two_len, &parts), HF_BGPSEC_OK);
	CHECK(parts.segments == 2 && parts.blocks == 1 && parts.suites[0] == 0xfb);

	ENDS(hf_bgpsec_sign_all(used, 3, NULL, 0, 1, 0, &route, two, sizeof(two), &two_len), HF_BGPSEC_LENGTH);
	ENDS(hf_bgpsec_sign_all(used, 0, NULL, 0, 1, 0, &route, two, sizeof(two), &two_len), HF_BGPSEC_UNSIGNED);
	ENDS(hf_bgpsec_sign_all(NULL, 2, NULL, 0, 1, 0, &route, two, sizeof(two), &two_len), HF_BGPSEC_NULL);
	used[1] = signers[1];
	ENDS(hf_bgpsec_sign_all(used, 2, NULL, 0, 1, 0, &route, two, sizeof(two), &two_len), HF_BGPSEC_OTHER_AS);
	used[1] = used[0];
	ENDS(hf_bgpsec_sign_all(used, 2, NULL, 0, 1, 0, &route, two, sizeof(two), &two_len), HF_BGPSEC_SAME_SUITE);
	used[1] = NULL;
	ENDS(hf_bgpsec_sign_all(used, 2, NULL, 0, 1, 0, &route, two, sizeof(two), &two_len), HF_BGPSEC_NULL);

#define MAKE(suite, ski, most, callback) hf_bgpsec_signer_callback(1, (suite), (ski), (most), (callback), NULL, &other)
	ENDS(MAKE(0, routers[0].ski, 72, sign_in_device), HF_BGPSEC_RESERVED_SUITE);
	ENDS(MAKE(255, routers[0].ski, 72, sign_in_device), HF_BGPSEC_RESERVED_SUITE);
	ENDS(MAKE(1, NULL, 72, sign_in_device), HF_BGPSEC_NULL);
	ENDS(MAKE(1, routers[0].ski, 72, NULL), HF_BGPSEC_NULL);
	ENDS(MAKE(1, routers[0].ski, 0, sign_in_device), HF_BGPSEC_LENGTH);
	ENDS(MAKE(1, routers[0].ski, HF_BGPSEC_MOST_SIGNATURE + 1, sign_in_device), HF_BGPSEC_LENGTH);
	CHECK(other == NULL);
#undef MAKE
	ENDS(hf_bgpsec_signer_callback(1, 1, routers[0].ski, 72, sign_in_device, NULL, NULL), HF_BGPSEC_NULL);
	for (int i = 0; i < 3; i++)
		hf_bgpsec_signer_free(signers[i]);
	hf_bgpsec_table_free(table);
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
	each_part_of_a_path_can_be_read();
	the_suites_are_known();
	a_callback_signs();
	two_signers_make_two_blocks();
	what_is_signed_is_valid();
	bad_arguments_are_said_to_be();
	threads_share_a_table();
	return 0;
}
