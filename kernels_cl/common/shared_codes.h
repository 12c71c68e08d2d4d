#pragma once
// Codes that host and kernels exchange, for C++ and OpenCL C.

// Codes of a fault word. fault.hpp says what each code means; fault.cpp asserts that they equal those of FaultCode.
enum {
  EXPERT_ID_OUT_OF_RANGE = 1,
  EXPERT_OVER_CAPACITY,
  KEY_OUT_OF_RANGE,
  INDEX_OUT_OF_RANGE,
  GROUP_COUNT_NEGATIVE,
  GROUP_ID_OUT_OF_ORDER,
  GROUP_SUM_TOO_LARGE,
  GROUP_SUM_TOO_SMALL,
  EXPERT_REPEATED,
  MASK_NOT_A_PREFIX,
  OTHER_CALL,
  PEER_LATE,
  GROUP_LATE,
  EXPERT_GONE,
  GROUP_TOO_LARGE
};

// Storage types that are known only when a kernel runs, see any_dtype.clh.
enum {
  ANY_F32,
  ANY_F16,
  ANY_BF16,
  ANY_I64  // f32 in the low half, as the Ascend operators pack scales
};

// How numbers are rounded to codes of a minifloat, and how a block's scale follows from its amax: see minifloat.clh.
enum { HALVES_TO_EVEN, HALVES_AWAY, DOWNWARD };
enum { FLOOR_AMAX, CEIL_RATIO, EVEN_AMAX, NEAREST_AMAX, CEIL_AMAX };
