#pragma once
// Codes that hosts and kernels tell each other, for C++ and OpenCL C.

// Of a fault word. fault.hpp says what each means, fault.cpp that they are FaultCode's.
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

// How numbers become codes of a minifloat, and how the largest magnitude of a block becomes its scale: minifloat.clh.
enum { HALVES_TO_EVEN, HALVES_AWAY, DOWNWARD };
enum { FLOOR_AMAX, CEIL_RATIO, EVEN_AMAX, NEAREST_AMAX, CEIL_AMAX };
