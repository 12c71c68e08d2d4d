// Measures how far rows of y are from rows of x. A row has one work-item on a CPU, the lanes of a work-group on a GPU.
#include "kernels_cl/common/columns.clh"
#include "kernels_cl/common/dtype.clh"
#include "kernels_cl/common/lanes.clh"
#include "kernels_cl/common/vector16.clh"
#include "kernels_cl/quantize/quantize_row.clh"
#include "kernels_cl/quantize/row_differences_args.h"

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void row_differences(const __global STORAGE(X_DTYPE)* x,
                                                                                 const __global STORAGE(Y_DTYPE)* y,
                                                                                 __global float* out,
                                                                                 const row_differences_args given) {
  const row_differences_args args = given;
  __local float scratch[LANES];
  __local int bits[LANES];
  const long row = get_group_id(0);
  x += args.x_first + row * args.x_stride;
  y += args.y_first + row * args.y_stride;
  const int width = args.width;
  int16 largest = 0, largest_difference = 0;
  float16 squares = 0.0f, squared_differences = 0.0f;
  for (int first = 0; first < width; first += STEP_COLUMNS) {
    const float16 value = OF(load_step, X_DTYPE)(x, first, width),
                  difference = OF(load_step, Y_DTYPE)(y, first, width) - value;
    largest = max(largest, magnitude_bits(value));
    largest_difference = max(largest_difference, magnitude_bits(difference));
    squares += value * value;
    squared_differences += difference * difference;
  }
  const int all_largest = max_int_over_lanes(max_int_of_16(largest), bits),
            all_largest_difference = max_int_over_lanes(max_int_of_16(largest_difference), bits);
  const float all_squares = sum_over_lanes(sum_of_16(squares), scratch),
              all_squared_differences = sum_over_lanes(sum_of_16(squared_differences), scratch);
  if (team_lane() == 0)
    vstore4((float4)(as_float(all_largest), as_float(all_largest_difference), all_squares, all_squared_differences),
            row, out + args.out_first);
}
