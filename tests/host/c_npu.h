#ifndef MOECL_TESTS_C_NPU_H
#define MOECL_TESTS_C_NPU_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/// A C program's use of an operator by name: rows of a range of experts in expert order.
///
/// @param out_wrong  Elements of the outputs that are not what the program expects.
/// @return           What failed, or NULL. Lifetime: the thread's next call of moecl
const char* c_npu_run(int32_t device_index, int32_t* out_wrong);

#ifdef __cplusplus
}
#endif
#endif
