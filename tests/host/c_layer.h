#ifndef MOECL_TESTS_C_LAYER_H
#define MOECL_TESTS_C_LAYER_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/// A C program's use of moecl: makes a layer of raw weights, runs it and computes it again in doubles.
///
/// @param out_error  Largest difference over the largest expected value.
/// @return           What failed, or NULL. Lifetime: the thread's next call of moecl
const char* c_layer_run(int32_t device_index, double* out_error);

#ifdef __cplusplus
}
#endif
#endif
