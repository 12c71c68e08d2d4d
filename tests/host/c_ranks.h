#ifndef MOECL_TESTS_C_RANKS_H
#define MOECL_TESTS_C_RANKS_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/// A C program's use of a group of ranks, a thread each: tokens to their experts, rows times expert + 1, and back; then
/// the sum of all results.
///
/// @param devices    Rank r runs on devices[r % device_count].
/// @param transport  moecl_transport
/// @param out_wrong  Elements that are not what the program expects.
/// @return           1: it ran; 0: a call failed and is named on stderr
int32_t c_ranks_run(const int32_t* devices, int32_t device_count, int32_t ranks, int32_t transport, int32_t* out_wrong);

#ifdef __cplusplus
}
#endif
#endif
