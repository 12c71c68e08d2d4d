// The layer of few tokens in one launch. The work-groups are resident together and take each step together, a part of it
// each; between two steps they meet (lib/grid_barrier.clh):
//   logits of slices of k -> experts of a token, a work-group each -> activation of the first product -> second product ->
//   weighted sum of a token's rows
// Which rows the experts have every work-group finds out for itself. An expert's rows are one tile: no token has an expert
// twice, and TILE_ROWS are at least the tokens.
//
// -DTENSOR_CORES=1: products by mma.sync, whose weights flow on from tile to tile. 0: a work-item has a column. With one lane
// there are no barriers: PoCL 3.1 compiles what follows a loop with a barrier once more for the loop of no steps.
#include "kernels_cl/lib/choose_experts.clh"
#include "kernels_cl/lib/grid_barrier.clh"
#include "kernels_cl/lib/row_order.clh"
#define OUT_DTYPE A_DTYPE
#define TILE_PANELS 2
#include "kernels_cl/lib/panel_tile.clh"
#if TENSOR_CORES
#define WARPS_M 1
#include "kernels_cl/lib/mma_stage.clh"
#define STAGES_BYTES (STAGES * STAGE_BYTES)
#else
#define STAGES_BYTES 0
#endif

#define TILE_COLUMNS (TILE_PANELS * PANEL)
#define SUMS_STRIDE (TILE_COLUMNS + 4)
#define QUADS (PANEL / 4)
#define QUAD_LANES (LANES < QUADS ? LANES : QUADS)
#define SLICE_LANES (LANES / QUAD_LANES)
#define TOKEN_BLOCK 8
#define LOGITS_BYTES (SLICE_LANES * TOKEN_BLOCK * PANEL * 4)
// The steps use the same memory in turn; ROUTING_BYTES: what the choice of experts needs.
#define LARGER(x, y) ((x) > (y) ? (x) : (y))
#define MEMORY_BYTES LARGER(LARGER(STAGES_BYTES, LOGITS_BYTES), LARGER(ROUTING_BYTES, 2 * MOST_SLOTS * 4))

// What tokens are multiplied with: one matrix, or one for each expert.
typedef struct {
  const __global STORAGE(W_DTYPE) * weights;
  const __global void* bias;
  ulong bias_first;
  long bias_stride, bias_column_stride;
  int bias_dtype, n, k;
} Matrices;
#define MATRICES_ARGS(name)                                                                                      \
  const __global STORAGE(W_DTYPE) *name##_weights, ulong name##_weights_first, const __global void *name##_bias,  \
      ulong name##_bias_first, long name##_bias_stride, long name##_bias_column_stride, int name##_bias_dtype,    \
      int name##_n, int name##_k
#define MATRICES(name)                                                                                       \
  {name##_weights + name##_weights_first, name##_bias, name##_bias_first, name##_bias_stride,                \
   name##_bias_column_stride, name##_bias_dtype, name##_n, name##_k}
INLINE Epilogue epilogue_of(Matrices of, int expert) {
  const Epilogue epilogue = {0, 0, of.bias, 0, of.bias_first + expert * of.bias_stride, 0, of.bias_column_stride, 0, of.bias_dtype};
  return epilogue;
}

typedef struct {
  const __global STORAGE(A_DTYPE) * rows;
  long stride;
  int count;
} Tokens;

// Sums of slices of `slice_k` k, in steps of SLICE_LANES that the lanes share. @param parts  Shape: [slices, T, E]
INLINE void multiply_router(Tokens x, Matrices router, int slice_k, __global float* parts, __local float* scratch) {
  const int lane = get_local_id(0) / QUAD_LANES;
  const int panels = (router.n - 1) / PANEL + 1, slices = (router.k - 1) / slice_k + 1, blocks = (x.count - 1) / TOKEN_BLOCK + 1;
  __local float4* const sums = (__local float4*)scratch;  // [SLICE_LANES][TOKEN_BLOCK][QUADS]
  for (int unit = get_group_id(0); unit < panels * slices * blocks; unit += get_num_groups(0)) {
    const int panel = unit % panels, slice = unit / panels % slices, first = unit / panels / slices * TOKEN_BLOCK;
    const __global STORAGE(W_DTYPE)* const weights = router.weights + (ulong)panel * router.k * PANEL;
    const int begin = slice * slice_k, end = min(begin + slice_k, router.k);
    GROUP_BARRIER();  // the sums before were read
    for (int quad = get_local_id(0) % QUAD_LANES; quad < QUADS; quad += QUAD_LANES) {
      float4 sum[TOKEN_BLOCK];
#pragma unroll
      for (int t = 0; t < TOKEN_BLOCK; ++t) sum[t] = 0;
#if LANES > 1
#pragma unroll 4
#endif
      for (int i = begin + lane; i < end; i += SLICE_LANES) {
        const float4 weight = PANEL4(W_DTYPE)(weights + (ulong)i * PANEL, quad * 4);
#pragma unroll
        for (int t = 0; t < TOKEN_BLOCK; ++t)
          sum[t] = mad((float4)(LOAD(A_DTYPE)(x.rows + min(first + t, x.count - 1) * x.stride, i)), weight, sum[t]);
      }
#pragma unroll
      for (int t = 0; t < TOKEN_BLOCK; ++t) sums[(lane * TOKEN_BLOCK + t) * QUADS + quad] = sum[t];
    }
    GROUP_BARRIER();
    FOR_EACH_BY_LANES(item, TOKEN_BLOCK * PANEL) {
      const int token = first + item / PANEL, expert = panel * PANEL + item % PANEL;
      float total = 0;
      for (int l = 0; l < SLICE_LANES; ++l) total += scratch[l * TOKEN_BLOCK * PANEL + item];
      if (token < x.count && expert < router.n) parts[((ulong)slice * x.count + token) * router.n + expert] = total;
    }
  }
}

// A token's logits, from its parts. By the work-group.
INLINE void add_parts(const __global float* parts, Matrices router, int slice_k, int token, int tokens, __global float* logits) {
  const int slices = (router.k - 1) / slice_k + 1;
  const Epilogue epilogue = epilogue_of(router, 0);
  FOR_EACH_BY_LANES(expert, router.n) {
    float sum = 0;
#if LANES > 1
#pragma unroll 8
#endif
    for (int slice = 0; slice < slices; ++slice) sum += parts[((ulong)slice * tokens + token) * router.n + expert];
    logits[expert] = sum + column_bias(&epilogue, expert);
  }
  MEMORY_BARRIER();
}

// What a product multiplies: row j is a[j], or of the first product the token of its slot.
typedef struct {
  const __global STORAGE(A_DTYPE) * a;
  long stride;
  int gathered, top_k, count;  // of `a`
} Rows;
INLINE int source_of(Rows rows, Order order, int row) { return rows.gathered ? order.slots[row] / rows.top_k : row; }

// The unit-th tile of a product with so many tiles of columns; count 0: there is none.
INLINE Tile tile_of(Order order, int unit, int column_tiles, int out_panels) {
  Tile tile = {{0, 0, 0}, 0};
  if (unit >= *order.count * column_tiles) return tile;
  const int expert = order.active[unit / column_tiles];
  tile.rows.first = begin_of(order, expert);
  tile.rows.expert = expert;
  tile.rows.count = min((int)(order.ends[expert] - tile.rows.first), TILE_ROWS);
  tile.first_panel = unit % column_tiles * out_panels;
  return tile;
}

#if TENSOR_CORES
// The stages that are copied ahead, of this tile and those after it.
typedef struct {
  Tile tile;
  Copies copies;
  int unit, step;
  int stage;  // that is multiplied next
} Flow;
INLINE void flow_from(Flow* flow, int unit, Rows rows, Order order, Matrices with, int column_tiles, int gated) {
  flow->unit = unit, flow->step = 0;
  flow->tile = tile_of(order, unit, column_tiles, TILE_PANELS / (1 + gated));
  if (flow->tile.rows.count == 0) return;
  flow->copies = copies_of(&flow->tile, rows.a, 0, 1, rows.count, rows.stride, with.weights, with.n, with.k, gated);
  if (!rows.gathered) return;
#pragma unroll
  for (int i = 0; i < A_COPIES; ++i) {
    const int row = get_local_id(0) / 8 + i * (COPY_ITEMS / 8);
    if (row < flow->tile.rows.count) flow->copies.source[i] = source_of(rows, order, flow->tile.rows.first + row);
  }
}
INLINE void copy_ahead(Flow* flow, int stage, Rows rows, Order order, Matrices with, int column_tiles, int gated, __local uchar* stages) {
  if (flow->tile.rows.count != 0) {
    copy_stage(&flow->copies, flow->step, stages + stage * STAGE_BYTES);
    if (++flow->step == (with.k - 1) / K_STEP + 1)
      flow_from(flow, flow->unit + get_num_groups(0), rows, order, with, column_tiles, gated);
  }
  commit_copies();
}
// The sums of a tile. Shape: [TILE_ROWS, SUMS_STRIDE]
INLINE void multiply_tile(Flow* flow, const Tile* tile, Rows rows, Order order, Matrices with, int column_tiles, int gated,
                          __local uchar* stages, __local float* sums) {
  const int lane = get_local_id(0) % 32, warp = get_local_id(0) / 32, tiles = (tile->rows.count - 1) / 16 + 1;
  WarpSums warp_sums;
  clear_sums(warp_sums);
  for (int step = 0; step < (with.k - 1) / K_STEP + 1; ++step) {
    WAIT_FOR_COPIES(STAGES - 2);
    barrier(CLK_LOCAL_MEM_FENCE);
    copy_ahead(flow, (flow->stage + STAGES - 1) % STAGES, rows, order, with, column_tiles, gated, stages);
    multiply_stage(warp_sums, shared_address(stages) + flow->stage * STAGE_BYTES, tiles);
    flow->stage = (flow->stage + 1) % STAGES;
  }
#pragma unroll
  for (int m = 0; m < TILES_M; ++m)
#pragma unroll
    for (int j = 0; j < 2 * TILE_PANELS; ++j) {
      __local float* const to = sums + (m * 16 + lane / 4) * SUMS_STRIDE + j / 2 * PANEL + warp * 16 + j % 2 * 8 + lane % 4 * 2;
      if (m >= tiles) continue;
      *(__local float2*)to = (float2)(warp_sums[m][j][0], warp_sums[m][j][1]);
      *(__local float2*)(to + 8 * SUMS_STRIDE) = (float2)(warp_sums[m][j][2], warp_sums[m][j][3]);
    }
}
#else
INLINE void multiply_tile(const Tile* tile, Rows rows, Order order, Matrices with, int gated, __local float* sums) {
  const int panels = (with.n - 1) / PANEL + 1;
  FOR_EACH_BY_LANES(column, TILE_COLUMNS) {
    const int panel = min(tile->first_panel + TILE_PANEL(column / PANEL, panels / 2, gated), panels - 1);
    const __global STORAGE(W_DTYPE)* const weights =
        with.weights + ((ulong)tile->rows.expert * panels + panel) * with.k * PANEL + column % PANEL;
    for (int row = 0; row < tile->rows.count; ++row) {
      const __global STORAGE(A_DTYPE)* const a = rows.a + source_of(rows, order, tile->rows.first + row) * rows.stride;
      float sum = 0;
      for (int i = 0; i < with.k; ++i)
        sum = mad(LOAD(A_DTYPE)(a, i), LOAD(W_DTYPE)(weights, (ulong)i * PANEL), sum);
      sums[row * SUMS_STRIDE + column] = sum;
    }
  }
}
#endif

// out = rows times the experts' weights: as f32, or `activates`, the activation in the type of `a`. By all work-groups.
INLINE void multiply_experts(Rows rows, Order order, Matrices with, int activates, Activation activation, __global void* out,
                             long out_stride, bool runs, __local uchar* stages, __local float* sums) {
  const int gated = activates && GATED, out_panels = TILE_PANELS / (1 + gated), width = with.n / (1 + gated);
  const int column_tiles = (width - 1) / (out_panels * PANEL) + 1, groups = get_num_groups(0);
  const int tiles = runs ? *order.count * column_tiles : 0;
#if TENSOR_CORES
  Flow flow = {{{0, 0, 0}, 0}};
  if (runs) flow_from(&flow, get_group_id(0), rows, order, with, column_tiles, gated);
  for (int stage = 0; stage < STAGES - 1; ++stage) copy_ahead(&flow, stage, rows, order, with, column_tiles, gated, stages);
#endif
  for (int unit = get_group_id(0); unit < tiles; unit += groups) {
    const Tile tile = tile_of(order, unit, column_tiles, out_panels);
    GROUP_BARRIER();  // the sums of the tile before were read
#if TENSOR_CORES
    multiply_tile(&flow, &tile, rows, order, with, column_tiles, gated, stages, sums);
#else
    multiply_tile(&tile, rows, order, with, gated, sums);
#endif
    GROUP_BARRIER();
    const Epilogue epilogue = epilogue_of(with, tile.rows.expert);
    const int up = gated ? PANEL : 0, fours = out_panels * QUADS;
    FOR_EACH_BY_LANES(item, tile.rows.count * fours) {
      const int row = item / fours, column = tile.first_panel * PANEL + item % fours * 4;
      const __local float* const at = sums + row * SUMS_STRIDE + item % fours * 4;
      float g[4], u[4];
      for (int j = 0; j < 4; ++j) {
        const bool exists = column + j < width;
        g[j] = at[j] + (exists ? column_bias(&epilogue, column + j + (gated && GATE_IS_RIGHT ? width : 0)) : 0.0f);
        u[j] = gated ? at[up + j] + (exists ? column_bias(&epilogue, column + j + (GATE_IS_RIGHT ? 0 : width)) : 0.0f) : 1.0f;
      }
      float y[4];
      vstore4(activates ? ACTIVATED(vload4(0, g), vload4(0, u)) : vload4(0, g), 0, y);
      const ulong first = (tile.rows.first + row) * out_stride + column;
      for (int j = 0; j < min(width - column, 4); ++j) {
        if (activates) STORE(A_DTYPE)(y[j], (__global STORAGE(A_DTYPE)*)out, first + j);
        else ((__global float*)out)[first + j] = y[j];
      }
    }
  }
#if TENSOR_CORES
  WAIT_FOR_COPIES(0);
#endif
}

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void fused_moe(
    const __global STORAGE(A_DTYPE) * x, ulong x_first, long x_stride, int tokens, MATRICES_ARGS(router), int slice_k,
    __global float* parts, ulong parts_first, GATING_ARGS, MATRICES_ARGS(gate_up), float alpha, float limit, float up_bias,
    __global STORAGE(A_DTYPE) * activated, ulong activated_first, long activated_stride, MATRICES_ARGS(down),
    __global float* rows, ulong rows_first, long rows_stride, const __global STORAGE(SHARED_DTYPE) * shared,
    ulong shared_first, long shared_stride, const __global float* shared_gate, ulong shared_gate_first, long gate_stride,
    __global STORAGE(SUM_DTYPE) * out, ulong out_first, long out_stride, __global ulong* words, ulong words_first,
    ulong stamp, int patience, __global int* fault, ulong fault_first) {
  __local uchar memory[MEMORY_BYTES] __attribute__((aligned(128)));
  __local float sums[TILE_ROWS * SUMS_STRIDE];
  __local int late;
  ORDER_MEMORY(row_order);
  const int group = get_group_id(0), work_groups = get_num_groups(0), lane = get_local_id(0), slots = tokens * top_k;
  GridBarrier grid = grid_barrier_of(words + words_first, stamp, patience, fault ? fault + fault_first : fault, &late);

  const Tokens all_tokens = {x + x_first, x_stride, tokens};
  const Matrices router = MATRICES(router);
  parts += parts_first;
  multiply_router(all_tokens, router, slice_k, parts, (__local float*)memory);
  bool complete = meet(&grid);

  __local ulong* const words_of_teams = (__local ulong*)memory + LANES;
  const Scratch of_group = {(__local float*)(words_of_teams + TEAMS * team_words), (__local ulong*)memory, words_of_teams};
  const TeamMemory choice_memory = team_memory(of_group, team_words, all_experts, top_k);
  const Rule rule = GATING_RULE;
  for (int token = group; token < (complete ? tokens : 0); token += work_groups) {
    add_parts(parts, router, slice_k, token, tokens, (__global float*)logits + logits_first + token * logits_stride);
    choose_experts(rule, GATING_TOKEN(token), GATING_CHOICE(token), TEAM_FIRST == 0, choice_memory);
  }
  complete = meet(&grid) && complete;

  find_order(ids + ids_first, complete ? slots : 0, row_order, (__local int*)memory);
  const Activation activation = {alpha, limit, up_bias};
  const Matrices gate_up = MATRICES(gate_up), down = MATRICES(down);
  const Rows of_tokens = {all_tokens.rows, x_stride, 1, top_k, tokens};
  multiply_experts(of_tokens, row_order, gate_up, 1, activation, activated + activated_first, activated_stride, complete, memory, sums);
  complete = meet(&grid) && complete;

  const Rows of_experts = {activated + activated_first, activated_stride, 0, 1, slots};
  rows += rows_first;
  multiply_experts(of_experts, row_order, down, 0, activation, rows, rows_stride, complete, memory, sums);
  complete = meet(&grid) && complete;

  const int hidden = down_n, columns = (hidden - 1) / (4 * LANES) + 1;
  for (int unit = group; unit < tokens * columns; unit += work_groups) {
    const int token = unit / columns, column = (unit % columns * LANES + lane) * 4;
    if (column >= hidden) continue;
    float4 sum = 0.0f;
    for (int k = 0; k < top_k; ++k) {
      const int row = complete ? row_order.rows[token * top_k + k] : -1;
      const float weight = LOAD(WEIGHT_DTYPE)(weights, weights_first + token * weights_stride + k);
      if (row >= 0) sum += weight * LOAD_UPTO4(f32)(rows + row * rows_stride, column, hidden - column);
    }
    if (shared) {
      const float gate = shared_gate ? 1.0f / (1.0f + exp(-shared_gate[shared_gate_first + token * gate_stride])) : 1.0f;
      sum += gate * LOAD_UPTO4(SHARED_DTYPE)(shared + shared_first + token * shared_stride, column, hidden - column);
    }
    // What could not be computed shall not look like a result.
    if (!complete) sum = NAN;
    STORE_UPTO4(SUM_DTYPE)(sum, out + out_first + token * out_stride, column, hidden - column);
  }
}
