/*
 * BGPsec path validation and signing (RFC 8205): libholdfast_bgpsec(3).
 *
 * Octets go in as they are in an UPDATE, and come out so. Handles are freed by whoever made them, by their _free; nothing else is
 * to be freed. All calls may be made from several threads, on the same handle too; it is freed when nobody uses it any more.
 *
 * Made from the library's source, not by hand: cargo test -p holdfast-path-validation-c --features programs.
 */

#ifndef HOLDFAST_BGPSEC_H
#define HOLDFAST_BGPSEC_H

#include <stddef.h>
#include <stdint.h>

/**
 * Octets of a subject key identifier.
 */
#define HF_BGPSEC_SKI 20

/**
 * Octets of a subjectPublicKeyInfo, at most: no PDU of a cache has more.
 */
#define HF_BGPSEC_MOST_SPKI 65535

/**
 * Changes that may wait for a commit.
 */
#define HF_BGPSEC_MOST_PENDING 4194304

/**
 * Good signatures that are remembered, at most.
 */
#define HF_BGPSEC_MOST_REMEMBERED 67108864

/**
 * What a hop adds to a path, at most: a segment of 6 octets, an SKI of 20, a length of 2, and DER of 72.
 */
#define HF_BGPSEC_MOST_HOP 100

/**
 * Signers of a call, at most: as many as a path has Signature_Blocks.
 */
#define HF_BGPSEC_MOST_SIGNERS 2

/**
 * Octets of a signature that a callback makes, at most.
 */
#define HF_BGPSEC_MOST_SIGNATURE 8192

/**
 * How a call has ended. A number means the same in all versions; there may be more of them.
 */
enum hf_bgpsec_code {
  /**
   * As it should.
   */
  HF_BGPSEC_OK = 0,
  /**
   * A pointer is null that must not be.
   */
  HF_BGPSEC_NULL = 1,
  /**
   * A length is longer than anything of its kind.
   */
  HF_BGPSEC_LENGTH = 2,
  /**
   * There is no room for what comes out; its length, at most, was written.
   */
  HF_BGPSEC_ROOM = 3,
  /**
   * The AFI is neither 1 (IPv4) nor 2 (IPv6).
   */
  HF_BGPSEC_AFI = 4,
  /**
   * The octets are not one prefix of the AFI.
   */
  HF_BGPSEC_NLRI = 5,
  /**
   * More changes wait for a commit than there may be.
   */
  HF_BGPSEC_PENDING = 6,
  /**
   * The octets are no private key of P-256.
   */
  HF_BGPSEC_PRIVATE_KEY = 7,
  /**
   * The system has no randomness.
   */
  HF_BGPSEC_RANDOMNESS = 8,
  /**
   * A fault of the library: please report it. It was written to standard error.
   */
  HF_BGPSEC_FAULT = 9,
  /**
   * There is no such segment or Signature_Block.
   */
  HF_BGPSEC_NO_SUCH = 10,
  /**
   * The library does not have the key: a callback signs with it.
   */
  HF_BGPSEC_KEY_ELSEWHERE = 11,
  /**
   * Malformed: the length of the Secure_Path is wrong.
   */
  HF_BGPSEC_SECURE_PATH_LENGTH = 20,
  /**
   * Malformed: the Secure_Path has no segment.
   */
  HF_BGPSEC_NO_SEGMENT = 21,
  /**
   * Malformed: there is no Signature_Block.
   */
  HF_BGPSEC_NO_BLOCK = 22,
  /**
   * Malformed: the length of a Signature_Block is wrong.
   */
  HF_BGPSEC_BLOCK_LENGTH = 23,
  /**
   * Malformed: the length of a signature reaches beyond its Signature_Block.
   */
  HF_BGPSEC_SIGNATURE_LENGTH = 24,
  /**
   * Malformed: a Signature_Block has not one signature for each segment.
   */
  HF_BGPSEC_SIGNATURE_COUNT = 25,
  /**
   * Malformed: the algorithm suite is 0 or 255.
   */
  HF_BGPSEC_RESERVED_SUITE = 26,
  /**
   * Malformed: two Signature_Blocks have the same algorithm suite.
   */
  HF_BGPSEC_SAME_SUITE = 27,
  /**
   * Malformed: something follows the Signature_Blocks.
   */
  HF_BGPSEC_TOO_MUCH = 28,
  /**
   * Refused: the most recent segment is not of the peer's AS.
   */
  HF_BGPSEC_NOT_THE_PEER = 40,
  /**
   * Refused: there is an AS_PATH beside BGPsec_PATH.
   */
  HF_BGPSEC_AS_PATH = 41,
  /**
   * Refused: a segment is of a confederation, and the peer is in none of ours.
   */
  HF_BGPSEC_CONFED_SEGMENT = 42,
  /**
   * Refused: the peer is in our confederation, and its segment does not say so.
   */
  HF_BGPSEC_NO_CONFED_SEGMENT = 43,
  /**
   * Refused: the peer leaves itself out of the path (pCount 0), which it may not.
   */
  HF_BGPSEC_PCOUNT_ZERO = 44,
  /**
   * Refused: our AS is in the path.
   */
  HF_BGPSEC_LOOP = 45,
  /**
   * Refused: a route is outside MP_REACH_NLRI.
   */
  HF_BGPSEC_OUTSIDE_MP_REACH = 46,
  /**
   * Refused: there is not exactly one route.
   */
  HF_BGPSEC_ROUTES = 47,
  /**
   * Refused: there are more segments than are looked at.
   */
  HF_BGPSEC_TOO_MANY_HOPS = 48,
  /**
   * Refused: the sum of pCounts is larger than what is looked at.
   */
  HF_BGPSEC_PCOUNTS = 49,
  /**
   * The path does not fit into a BGPsec_PATH any more.
   */
  HF_BGPSEC_TOO_LONG = 60,
  /**
   * The path has no Signature_Block of the signer's suite: it goes on unsigned, with an AS_PATH.
   */
  HF_BGPSEC_UNSIGNED = 61,
  /**
   * Whoever has the key does not sign: the library, or a callback.
   */
  HF_BGPSEC_CANNOT_SIGN = 62,
  /**
   * All of the path was added inside the confederation, where the route comes from.
   */
  HF_BGPSEC_INSIDE = 63,
  /**
   * The signers are of several ASs.
   */
  HF_BGPSEC_OTHER_AS = 64,
};

/**
 * What is to be thought of a path.
 */
enum hf_bgpsec_state {
  /**
   * Nothing: the call has failed.
   */
  HF_BGPSEC_NOT_JUDGED = 0,
  /**
   * All signatures of a Signature_Block are good.
   */
  HF_BGPSEC_VALID = 1,
  /**
   * In each block of a suite that is known, one is not.
   */
  HF_BGPSEC_NOT_VALID = 2,
  /**
   * No block has a suite that is known: the route goes on as one without signatures, and is not "Not Valid".
   */
  HF_BGPSEC_UNSUPPORTED = 3,
};

/**
 * What is wrong with a signature.
 */
enum hf_bgpsec_reason {
  /**
   * Nothing.
   */
  HF_BGPSEC_NO_REASON = 0,
  /**
   * The AS has no key of that name.
   */
  HF_BGPSEC_NO_KEY = 1,
  /**
   * It has one, of which the suite can make nothing.
   */
  HF_BGPSEC_UNUSABLE_KEY = 2,
  /**
   * It was not made with the key, or over other octets.
   */
  HF_BGPSEC_BAD_SIGNATURE = 3,
};

/**
 * A router's private key and its AS. A key that is here is gone from memory when this is freed.
 */
struct hf_bgpsec_signer;

/**
 * Routers' public keys, by AS and subject key identifier. Any thread may change it and validate with it at any time.
 */
struct hf_bgpsec_table;

/**
 * What a commit has come to.
 */
struct hf_bgpsec_applied {
  /**
   * Pairs of AS and SKI for which keys have come or gone.
   */
  size_t changed;
  /**
   * Keys that were added and were there already.
   */
  size_t duplicates;
  /**
   * Keys that were removed and were not there.
   */
  size_t unknown;
};

/**
 * Who has sent an UPDATE over an external session, to whom, and what else is in it. Numbers that are yes or no: anything but 0
 * is yes.
 */
struct hf_bgpsec_ingress {
  /**
   * The AS in the peer's OPEN.
   */
  uint32_t peer_as;
  /**
   * The AS in ours.
   */
  uint32_t own_as;
  /**
   * Whether the peer is in another member AS of our confederation.
   */
  uint8_t in_confederation;
  /**
   * Whether the peer may leave itself out of the path: a route server, or an AS that migrates.
   */
  uint8_t pcount_zero;
  /**
   * Whether the UPDATE has an AS_PATH as well.
   */
  uint8_t as_path;
  /**
   * Whether it has routes in its own fields, outside MP_REACH_NLRI.
   */
  uint8_t outside_mp_reach;
  /**
   * Routes in MP_REACH_NLRI.
   */
  uint32_t reachable;
  /**
   * Segments that are looked at, at most; 0: 64.
   */
  uint32_t most_hops;
  /**
   * The sum of pCounts that is looked at, at most; 0: 1000.
   */
  uint32_t most_pcount;
  /**
   * Another AS number of ours that no path may have; 0: none.
   */
  uint32_t own_other;
  /**
   * Whether the peer is in our AS, or in our member AS.
   */
  uint8_t internal;
  /**
   * Whether the routes outside MP_REACH_NLRI are its one prefix once more, and nothing else.
   */
  uint8_t outside_same;
  /**
   * Whether the peer may send them.
   */
  uint8_t repeated_prefix;
};

/**
 * The route that a path is about, and to whom it goes.
 */
struct hf_bgpsec_route {
  /**
   * 1: IPv4, 2: IPv6.
   */
  uint16_t afi;
  /**
   * 1: unicast.
   */
  uint8_t safi;
  /**
   * The prefix as in MP_REACH_NLRI: its length in bits, and as many octets as that needs. Bits behind it are passed over.
   */
  const uint8_t *nlri;
  /**
   * How many octets that are.
   */
  size_t nlri_len;
  /**
   * The AS that the receiver has in its OPEN: ours when we validate, the peer's when we sign.
   */
  uint32_t target_as;
};

/**
 * A verdict; of a path that is not valid, where validation has ended.
 */
struct hf_bgpsec_verdict {
  /**
   * What is to be thought of the path. What follows is about a path that is not valid, and 0 otherwise.
   */
  enum hf_bgpsec_state state;
  /**
   * What is wrong.
   */
  enum hf_bgpsec_reason reason;
  /**
   * The segment; 0 is the most recent one.
   */
  uint32_t hop;
  /**
   * Its AS.
   */
  uint32_t asn;
  /**
   * What its signature calls the key.
   */
  uint8_t ski[20];
  /**
   * The block's algorithm suite.
   */
  uint8_t suite;
};

/**
 * How many parts a path has.
 */
struct hf_bgpsec_parts {
  /**
   * Segments of the Secure_Path, and signatures of each Signature_Block; one at least.
   */
  size_t segments;
  /**
   * Signature_Blocks: one or two.
   */
  size_t blocks;
  /**
   * Their algorithm suites; 0 for a block that is not there.
   */
  uint8_t suites[2];
};

/**
 * What an AS has added to the Secure_Path.
 */
struct hf_bgpsec_segment {
  /**
   * The AS.
   */
  uint32_t asn;
  /**
   * How many times the AS counts.
   */
  uint8_t pcount;
  /**
   * The flags as received; 0x80: added inside a confederation.
   */
  uint8_t flags;
};

/**
 * A signature of a Signature_Block.
 */
struct hf_bgpsec_signature {
  /**
   * Where it is in the octets of the path: there as long as those are.
   */
  const uint8_t *octets;
  /**
   * How many octets it has.
   */
  size_t octets_len;
  /**
   * What it calls the key.
   */
  uint8_t ski[20];
  /**
   * The block's algorithm suite.
   */
  uint8_t suite;
};

/**
 * What a callback signs.
 */
struct hf_bgpsec_to_sign {
  /**
   * What the signature covers (RFC 8205 section 4.2).
   */
  const uint8_t *octets;
  /**
   * How many octets that are.
   */
  size_t octets_len;
  /**
   * The digest of these octets, SHA-256 for suite 1. Null if the library does not know the suite.
   */
  const uint8_t *digest;
  /**
   * How many octets it has.
   */
  size_t digest_len;
};

/**
 * Signs, with a key that the library does not see. `user` is what `hf_bgpsec_signer_callback` was given. `signature` has room for
 * `capacity` octets, and `signature_len` for how many there are. 0: it has signed; anything else: it cannot. It returns: it does
 * not throw, and does not jump.
 */
typedef int (*hf_bgpsec_callback)(void *user,
                                  const struct hf_bgpsec_to_sign *what,
                                  uint8_t *signature,
                                  size_t capacity,
                                  size_t *signature_len);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * What a code means, as text that is never freed; of a number that is none, that it is none.
 */
const char *hf_bgpsec_strerror(int code);

/**
 * The version of the library that runs, as text that is never freed.
 */
const char *hf_bgpsec_version(void);

/**
 * Makes a table without keys. It remembers about so many good signatures (`HF_BGPSEC_MOST_REMEMBERED` at most), 16 octets each, and does
 * not verify them again; 0: none.
 *
 * Relied on: `table` is null or points at room for a pointer.
 */
enum hf_bgpsec_code hf_bgpsec_table_new(size_t remembered,
                                        struct hf_bgpsec_table **table);

/**
 * Frees a table. Null is nothing to free.
 *
 * Relied on: `table` is null, or a table that nobody uses now or later.
 */
void hf_bgpsec_table_free(struct hf_bgpsec_table *table);

/**
 * Adds a router's key, with the next commit. `ski` are `HF_BGPSEC_SKI` octets, `spki` is a subjectPublicKeyInfo in DER: what a cache
 * says (RFC 8210 section 5.10). A key that no suite can use is taken, and verifies nothing.
 *
 * Relied on: `table` is null or a table; `ski` is null or points at 20 octets, `spki` is null or at `spki_len`.
 */
enum hf_bgpsec_code hf_bgpsec_table_add(struct hf_bgpsec_table *table,
                                        uint32_t asn,
                                        const uint8_t *ski,
                                        const uint8_t *spki,
                                        size_t spki_len);

/**
 * Removes a router's key, with the next commit: that with the same AS, SKI and subjectPublicKeyInfo.
 *
 * Relied on: As of `hf_bgpsec_table_add`.
 */
enum hf_bgpsec_code hf_bgpsec_table_remove(struct hf_bgpsec_table *table,
                                           uint32_t asn,
                                           const uint8_t *ski,
                                           const uint8_t *spki,
                                           size_t spki_len);

/**
 * All that was added and removed since the last commit takes effect, in that order and as one: who validates meanwhile sees
 * none of it, who validates afterwards all. `applied` may be null.
 *
 * Relied on: `table` is null or a table; `applied` is null or points at room for its type.
 */
enum hf_bgpsec_code hf_bgpsec_table_commit(struct hf_bgpsec_table *table,
                                           struct hf_bgpsec_applied *applied);

/**
 * How many keys there are, as of the last commit.
 *
 * Relied on: `table` is null or a table; `count` is null or points at a number.
 */
enum hf_bgpsec_code hf_bgpsec_table_count(const struct hf_bgpsec_table *table, size_t *count);

/**
 * What is looked at before any signature: the form of the attribute, then the checks of RFC 8205 section 5.2. Anything but
 * `HF_BGPSEC_OK`: the UPDATE is treated as a withdrawal of its routes (RFC 7606). `path` is the value of the attribute, without type
 * and length.
 *
 * Relied on: `path` is null or points at `path_len` octets; `ingress` is null or points at its type.
 */
enum hf_bgpsec_code hf_bgpsec_check(const uint8_t *path,
                                    size_t path_len,
                                    const struct hf_bgpsec_ingress *ingress);

/**
 * The verdict on a path, by the keys as of the last commit (RFC 8205 section 5.2). That it is not valid is no failure of the
 * call. A path of any length is verified, hop by hop: the bound on hops is that of `hf_bgpsec_check`, which comes first.
 *
 * Relied on: `table` is null or a table; `path` is null or points at `path_len` octets; `route` is null or points at its type, and that
 * at its octets; `verdict` is null or points at room for its type.
 */
enum hf_bgpsec_code hf_bgpsec_validate(const struct hf_bgpsec_table *table,
                                       const uint8_t *path,
                                       size_t path_len,
                                       const struct hf_bgpsec_route *route,
                                       struct hf_bgpsec_verdict *verdict);

/**
 * The algorithm suites that the library validates, an octet each.
 *
 * Relied on: `out` is null or at room for `capacity` octets, `out_len` is null or at a number.
 */
enum hf_bgpsec_code hf_bgpsec_suites(uint8_t *out, size_t capacity, size_t *out_len);

/**
 * The AS_PATH that a path stands for (RFC 8205 section 4.4), with ASs of four octets, without type and length.
 *
 * Relied on: `path` is null or points at `path_len` octets, `out` is null or at room for `capacity`, `out_len` is null or at a number.
 */
enum hf_bgpsec_code hf_bgpsec_as_path(const uint8_t *path,
                                      size_t path_len,
                                      uint8_t *out,
                                      size_t capacity,
                                      size_t *out_len);

/**
 * The path without what members of a confederation have added since it came in (RFC 8205 section 4.3): what the AS at the border
 * signs before it leaves. `HF_BGPSEC_INSIDE`: nothing is left.
 *
 * Relied on: `path` is null or points at `path_len` octets, `out` is null or at room for `capacity`, `out_len` is null or at a number.
 */
enum hf_bgpsec_code hf_bgpsec_leave_confederation(const uint8_t *path,
                                                  size_t path_len,
                                                  uint8_t *out,
                                                  size_t capacity,
                                                  size_t *out_len);

/**
 * How many segments and Signature_Blocks a path has.
 *
 * Relied on: `path` is null or points at `path_len` octets; `parts` is null or points at room for its type.
 */
enum hf_bgpsec_code hf_bgpsec_read(const uint8_t *path, size_t path_len, struct hf_bgpsec_parts *parts);

/**
 * A segment of the Secure_Path; 0 is the most recent one. `HF_BGPSEC_NO_SUCH`: the path has fewer.
 *
 * Relied on: `path` is null or points at `path_len` octets; `segment` is null or points at room for its type.
 */
enum hf_bgpsec_code hf_bgpsec_segment_at(const uint8_t *path,
                                         size_t path_len,
                                         size_t hop,
                                         struct hf_bgpsec_segment *segment);

/**
 * The signature of a segment in a Signature_Block. Blocks are counted from 0 in the order of the attribute, segments as in
 * `hf_bgpsec_segment_at`. `HF_BGPSEC_NO_SUCH`: the path has fewer.
 *
 * Relied on: `path` is null or points at `path_len` octets; `signature` is null or points at room for its type.
 */
enum hf_bgpsec_code hf_bgpsec_signature_at(const uint8_t *path,
                                           size_t path_len,
                                           size_t block,
                                           size_t hop,
                                           struct hf_bgpsec_signature *signature);

/**
 * A signer with a private key: PKCS#8 (RFC 5958) or an ECPrivateKey of SEC 1 (RFC 5915), in DER.
 *
 * Relied on: `der` is null or points at `der_len` octets, `signer` is null or at room for a pointer.
 */
enum hf_bgpsec_code hf_bgpsec_signer_new(uint32_t asn,
                                         const uint8_t *der,
                                         size_t der_len,
                                         struct hf_bgpsec_signer **signer);

/**
 * A signer with a new private key, which nobody else has.
 *
 * Relied on: `signer` is null or points at room for a pointer.
 */
enum hf_bgpsec_code hf_bgpsec_signer_generate(uint32_t asn, struct hf_bgpsec_signer **signer);

/**
 * A signer whose key is elsewhere: in a device, say. `callback` makes its signatures, of `suite` and with `most` octets at most (72
 * for suite 1, `HF_BGPSEC_MOST_SIGNATURE` for any). `ski` are `HF_BGPSEC_SKI` octets. Suites other than 1 can be signed with and not
 * validated; 0 and 255 are none.
 *
 * Relied on: `ski` is null or points at 20 octets, `signer` is null or at room for a pointer. `callback` is null or may be called
 * with `user`, by each thread that signs with the signer, until the signer is freed. It writes as many octets as it says, and
 * `capacity` at most.
 */
enum hf_bgpsec_code hf_bgpsec_signer_callback(uint32_t asn,
                                              uint8_t suite,
                                              const uint8_t *ski,
                                              size_t most,
                                              hf_bgpsec_callback callback,
                                              void *user,
                                              struct hf_bgpsec_signer **signer);

/**
 * Frees a signer. Null is nothing to free.
 *
 * Relied on: `signer` is null, or a signer that nobody uses now or later.
 */
void hf_bgpsec_signer_free(struct hf_bgpsec_signer *signer);

/**
 * The subject key identifier of its key, `HF_BGPSEC_SKI` octets.
 *
 * Relied on: `signer` is null or a signer; `ski` is null or points at room for 20 octets.
 */
enum hf_bgpsec_code hf_bgpsec_signer_ski(const struct hf_bgpsec_signer *signer, uint8_t *ski);

/**
 * The subjectPublicKeyInfo of its key, in DER: what others add to their tables. `HF_BGPSEC_KEY_ELSEWHERE`: a callback has it.
 *
 * Relied on: `signer` is null or a signer; `out` is null or points at room for `capacity` octets, `out_len` is null or at a number.
 */
enum hf_bgpsec_code hf_bgpsec_signer_spki(const struct hf_bgpsec_signer *signer,
                                          uint8_t *out,
                                          size_t capacity,
                                          size_t *out_len);

/**
 * The path after the signer's AS was added (RFC 8205 section 4.2), to be sent to the route's target AS. No octets in `path`: the
 * route is originated. A block of another suite is left out. How long the signature will be nobody knows, so there has to be
 * room for `HF_BGPSEC_MOST_HOP` octets more than `path` has, and 5 more for the first one. A callback's signature may be longer
 * than the 72 octets in that.
 *
 * Relied on: `signer` is null or a signer; `path` is null or points at `path_len` octets; `route` is null or points at its type, and
 * that at its octets; `out` is null or points at room for `capacity` octets, `out_len` is null or at a number. `out` is not `path`.
 */
enum hf_bgpsec_code hf_bgpsec_sign(const struct hf_bgpsec_signer *signer,
                                   const uint8_t *path,
                                   size_t path_len,
                                   uint8_t pcount,
                                   uint8_t flags,
                                   const struct hf_bgpsec_route *route,
                                   uint8_t *out,
                                   size_t capacity,
                                   size_t *out_len);

/**
 * The same with several signers of one AS, each for a suite of its own: `count` pointers at `signers`, `HF_BGPSEC_MOST_SIGNERS` at
 * most. A signer whose suite the path does not have is not asked. There has to be room for a segment of 6 octets, and for each
 * signer 22 octets and its signature; and for a route that is originated 2 octets, and 3 for each signer.
 *
 * Relied on: `signers` is null or points at `count` pointers, each null or a signer; the rest is as of `hf_bgpsec_sign`.
 */
enum hf_bgpsec_code hf_bgpsec_sign_all(const struct hf_bgpsec_signer *const *signers,
                                       size_t count,
                                       const uint8_t *path,
                                       size_t path_len,
                                       uint8_t pcount,
                                       uint8_t flags,
                                       const struct hf_bgpsec_route *route,
                                       uint8_t *out,
                                       size_t capacity,
                                       size_t *out_len);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HOLDFAST_BGPSEC_H */
