#include "host/layer/forward_args.hpp"

#include <moecl/workspace.hpp>

#include <array>

#include "runtime/check.hpp"
#include "runtime/operands.hpp"

namespace moecl {
namespace {

/// [B, S, H] as [B * S, H]; anything else as it is.
TensorView by_token(const TensorView& view) {
  if (view.rank != 3 || !view.contiguous()) return view;
  return TensorView(view.buffer, view.dtype, {view.shape[0] * view.shape[1], view.shape[2]});
}

/// As expect_tensor. Also checks that the tensor fits its memory.
void expect_operand(const TensorView& view, const char* what, DType dtype, std::initializer_list<std::int64_t> dims) {
  expect_tensor(view, what, dtype, dims);
  expect_memory(view, what);
}

/// Checks a tensor of i32 or i64.
void expect_ints(const TensorView& view, const char* what, std::initializer_list<std::int64_t> dims) {
  require(view.dtype == DType::i32 || view.dtype == DType::i64, "{}: expected i32 or i64, got {}", what, view);
  expect_operand(view, what, view.dtype, dims);
  require(view.contiguous(), "{}: expected contiguous {}, got rows {} elements apart", what, view, view.stride[0]);
}

void expect_floats(const TensorView& view, const char* what) {
  require(is_activation_dtype(view.dtype), "{}: expected f32, f16 or bf16, got {}", what, view);
}

/// Checks that `view` has the shape of x, but with `columns` columns. Turns it into [T, columns].
void expect_like_x(TensorView& view, const char* what, const TensorView& x, std::int64_t columns) {
  TensorView expected = x;
  expected.shape[static_cast<std::size_t>(x.rank - 1)] = columns;
  expected.dtype = view.dtype;
  require(view.rank == x.rank && view.shape == expected.shape, "{}: expected the shape of x, {}, got {}", what,
          expected, view);
  view = by_token(view);
  expect_operand(view, what, view.dtype, {by_token(x).shape[0], columns});
}

void expect_output(TensorView& view, const char* what, const TensorView& x, std::int64_t columns) {
  if (!view.present()) return;
  expect_floats(view, what);
  expect_like_x(view, what, x, columns);
}

/// Checks hidden states that the caller has quantized.
void expect_codes(MoeForward& args, std::int64_t tokens, std::int64_t width, const LayerParts& parts) {
  const OperandQuant& how = parts.options.activations;
  const std::optional<CodeRows> codes = code_rows(how);
  const TensorView &x = args.expert_input, &scale = args.expert_input_scale;
  require(codes && !how.static_scale,
          "expert_input_scale: the experts' rows are {}: they are no codes with scales of their own", describe(how));
  require(parts.options.layout == ExpertLayout::standard && !parts.shape.router.weight_on_input,
          "expert_input_scale: codes are neither laid out in batches nor multiplied by weights");
  const std::int64_t scales = codes->scales(width);
  const bool a_token = scale.rank == 1 || (codes->group == 0 && scale.rank == 2);
  require(x.dtype == codes->codes && scale.dtype == codes->scale && scale.shape[0] == tokens && scale.contiguous() &&
              (a_token ? codes->group == 0 && (scale.rank == 1 || scale.shape[1] == 1)
                       : scale.rank == 2 && scale.shape[1] == scales),
          "expert_input: expected {} with scales {}, as {}, got {} with scales {}", name(codes->codes),
          codes->group == 0 ? fmt::format("{}[{}]", name(codes->scale), tokens)
                            : fmt::format("{}[{}, {}]", name(codes->scale), tokens, scales),
          describe(how), x, scale);
  if (codes->group == 0) args.expert_input_scale = TensorView(scale.buffer, scale.dtype, {tokens});
  expect_memory(args.expert_input_scale, "expert_input_scale");
}

/// Why hidden states of the router's width are needed; null: they are not.
const char* use_of_x(const MoeForward& args, const MoeShape& shape, const LayerParts& parts) {
  const bool codes = args.expert_input_scale.present();
  if (!args.expert_input.present()) return "the experts take it";
  if (args.router_logits.present() || (parts.has_router && !args.ids.present() && !args.given_logits.present()))
    return "the router takes it";
  if (shape.shared_intermediate > 0 && (args.out.present() || args.shared_out.present()))
    return "the shared experts take it";
  if (codes && parts.special.give_rows()) return "experts without products give it, and expert_input is codes";
  return nullptr;
}

/// Checks x and turns it into [T, H]. If x may be absent, the result has its shape but no memory.
void expect_x(MoeForward& args, const MoeForward& given, const MoeShape& shape, const LayerParts& parts) {
  if (const char* use = use_of_x(given, shape, parts); given.x.present() || use != nullptr) {
    require(given.x.present(), "x: absent, but {}", use);
    args.x = by_token(given.x);
    require(args.x.rank == 2, "x: expected [T, {}] or contiguous [B, S, {}], got {}", shape.hidden, shape.hidden,
            given.x);
    return expect_operand(args.x, "x", parts.options.dtype, {args.x.shape[0], shape.hidden});
  }
  args.x = by_token(given.expert_input);
  require(args.x.rank == 2, "expert_input: expected [T, {}] or contiguous [B, S, {}], got {}", shape.expert_width(),
          shape.expert_width(), given.expert_input);
  args.x.buffer = {};
  args.x.dtype = parts.options.dtype;
  args.x.shape[1] = args.x.stride[0] = shape.hidden;
}

void expect_expert_input(MoeForward& args, const TensorView& like, const MoeShape& shape, const LayerParts& parts) {
  const bool codes = args.expert_input_scale.present();
  const std::int64_t width = shape.expert_width();
  if (!args.expert_input.present()) {
    require(!codes, "expert_input_scale: of no expert_input");
    require(width == shape.hidden || args.x.shape[0] == 0,
            "expert_input: absent, but the experts take {} columns and the router {}", width, shape.hidden);
    if (width != shape.hidden) args.expert_input = TensorView({}, args.x.dtype, {0, width});
    return;
  }
  require(codes || args.expert_input.dtype == parts.options.dtype, "expert_input: expected {}, got {}",
          name(parts.options.dtype), args.expert_input);
  expect_like_x(args.expert_input, "expert_input", like, width);
  if (!codes) return;
  expect_codes(args, args.x.shape[0], width, parts);
  require(!parts.special.give_rows() || width == shape.hidden,
          "expert_input: expected plain rows, which experts without products give, got {}", args.expert_input);
}

/// Checks the routing inputs, which are [T, *] already.
void expect_routing(const MoeForward& args, std::int64_t tokens, const MoeShape& shape, const LayerParts& parts) {
  const std::int32_t top_k = shape.router.top_k;
  const bool chosen = args.ids.present(), by_table = shape.vocabulary > 0;
  if (args.finished.present()) {
    require(args.finished.dtype == DType::u8 || args.finished.dtype == DType::boolean,
            "finished: expected u8 or boolean, got {}", args.finished);
    expect_operand(args.finished, "finished", args.finished.dtype, {tokens});
  }
  if (args.given_logits.present()) {
    require(is_activation_dtype(args.given_logits.dtype), "given_logits: expected f32, f16 or bf16, got {}",
            args.given_logits);
    expect_operand(args.given_logits, "given_logits", args.given_logits.dtype, {tokens, shape.choices()});
    require(!args.router_logits.present(), "router_logits: there are none of the layer's router beside given_logits");
  }
  require(parts.has_router || !args.router_logits.present(), "router_logits: the layer has no router");
  require(parts.has_router || chosen || args.given_logits.present() || by_table || tokens == 0,
          "the layer has no router: give given_logits, or ids with weights");
  require(args.ids.present() == args.weights.present(), "ids and weights: give both or neither");
  require(by_table || !args.token_ids.present(), "token_ids: the layer has no table of experts by token id");
  if (!chosen) {
    require(!by_table || args.token_ids.present() || tokens == 0,
            "token_ids: a table says the experts of this layer: give them, or ids with weights");
    if (by_table && tokens > 0) expect_ints(args.token_ids, "token_ids", {tokens});
    return;
  }
  require(!args.given_logits.present(), "given_logits and ids: give one of them, since either says what is chosen");
  require(!args.token_ids.present(), "token_ids and ids: give one of them, since either says what is chosen");
  require(!args.topk_ids.present() && !args.topk_weights.present(),
          "topk_ids and topk_weights are the router's outputs: they cannot be asked for with the caller's own ids");
  require(!args.finished.present(), "finished: the caller's own ids say so themselves, by -1");
  expect_ints(args.ids, "ids", {tokens, top_k});
  expect_operand(args.weights, "weights", DType::f32, {tokens, top_k});
}

}  // namespace

MoeForward part_of(const MoeForward& args, std::int64_t first, std::int64_t count) {
  MoeForward part = args;
  for (TensorView* view : {&part.x, &part.expert_input, &part.expert_input_scale, &part.given_logits, &part.token_ids,
                           &part.ids, &part.weights, &part.finished, &part.out, &part.routed_out, &part.shared_out,
                           &part.router_logits, &part.topk_ids, &part.topk_weights})
    if (view->present()) *view = view->rows(first, count);
  if (args.expert_rows.present()) {
    const std::int64_t each = args.expert_rows.shape[0] / std::max<std::int64_t>(args.x.shape[0], 1);
    part.expert_rows = args.expert_rows.rows(first * each, count * each);
  }
  return part;
}

bool is_in_place(const MoeForward& args) {
  return args.x.buffer.handle == args.out.buffer.handle && args.x.buffer.offset_bytes == args.out.buffer.offset_bytes &&
         args.x.dtype == args.out.dtype && args.x.stride == args.out.stride;
}

MoeForward checked_forward(const MoeForward& args, const MoeShape& shape, const LayerParts& parts,
                           std::int64_t local_experts) {
  MoeForward checked = args;
  expect_x(checked, args, shape, parts);
  const std::int64_t tokens = checked.x.shape[0], width = shape.expert_width();
  const std::int32_t top_k = shape.router.top_k;
  const TensorView& like = args.x.present() ? args.x : args.expert_input;
  expect_expert_input(checked, like, shape, parts);
  require(args.out.present() || args.routed_out.present() || args.shared_out.present() || args.expert_rows.present(),
          "out: absent, and neither routed_out nor shared_out nor expert_rows is asked for");
  require(!args.out.present() || width == shape.hidden || shape.shared_intermediate == 0,
          "out: the experts give {} columns and the shared experts {}: ask for routed_out and shared_out", width,
          shape.hidden);
  expect_output(checked.out, "out", like, width);
  expect_output(checked.routed_out, "routed_out", like, width);
  expect_output(checked.shared_out, "shared_out", like, shape.hidden);
  require(!args.shared_out.present() || shape.shared_intermediate > 0, "shared_out: the layer has no shared experts");
  if (args.expert_rows.present()) {
    expect_floats(args.expert_rows, "expert_rows");
    expect_operand(args.expert_rows, "expert_rows", args.expert_rows.dtype, {tokens * top_k, width});
  }
  if (args.router_logits.present())
    expect_operand(args.router_logits, "router_logits", DType::f32, {tokens, shape.choices()});
  if (args.topk_ids.present()) expect_ints(args.topk_ids, "topk_ids", {tokens, top_k});
  if (args.topk_weights.present()) expect_operand(args.topk_weights, "topk_weights", DType::f32, {tokens, top_k});
  if (args.expert_num_tokens.present()) expect_ints(args.expert_num_tokens, "expert_num_tokens", {local_experts});
  if (args.expert_load.present()) {
    expect_operand(args.expert_load, "expert_load", DType::i64, {local_experts});
    require(args.expert_load.contiguous(), "expert_load: expected contiguous {}", args.expert_load);
  }
  if (args.fault.present()) expect_operand(args.fault, "fault", DType::i32, {4});
  expect_routing(checked, tokens, shape, parts);
  if (tokens == 0 && shape.vocabulary > 0) checked.token_ids = TensorView({}, DType::i32, {0});
  return checked;
}

MoeForward checked_prefetch(const MoeInputs& given, const MoeShape& shape, const LayerParts& parts) {
  const TensorView& said_by = given.ids.present() ? given.ids : given.given_logits;
  const std::int64_t width = shape.expert_width(),
                     tokens = said_by.present() ? said_by.shape[0] : by_token(given.x).shape[0];
  MoeForward args;
  static_cast<MoeInputs&>(args) = given;
  args.expert_input = {};  // no memory, but its shape
  args.expert_input.rank = 2, args.expert_input.dtype = parts.options.dtype;
  args.expert_input.shape = {tokens, width}, args.expert_input.stride = {width, 1};
  args.expert_input_scale = {};
  MoeForward checked = args;
  expect_x(checked, args, shape, parts);
  if (width == shape.hidden) checked.expert_input = {};
  expect_routing(checked, checked.x.shape[0], shape, parts);
  return checked;
}

void expect_workspace_start(BufferView workspace) {
  require(workspace.offset_bytes % WorkspaceLayout::base_alignment_bytes == 0,
          "workspace: byte offset {} is no multiple of {}", workspace.offset_bytes,
          WorkspaceLayout::base_alignment_bytes);
}

void expect_operands_apart(const MoeForward& args, BufferView workspace) {
  using enum Access;
  const auto in_memory = [](const TensorView& view) { return view.buffer.handle != nullptr ? view : TensorView(); };
  expect_apart(std::array{
      Operand("x", read, in_memory(args.x)), Operand("expert_input", read, in_memory(args.expert_input)),
      Operand("expert_input_scale", read, args.expert_input_scale), Operand("given_logits", read, args.given_logits),
      Operand("token_ids", read, args.token_ids), Operand("ids", read, args.ids),
      Operand("weights", read, args.weights), Operand("finished", read, args.finished),
      Operand("out", written, args.out), Operand("routed_out", written, args.routed_out),
      Operand("shared_out", written, args.shared_out), Operand("router_logits", written, args.router_logits),
      Operand("topk_ids", written, args.topk_ids), Operand("topk_weights", written, args.topk_weights),
      Operand("expert_rows", written, args.expert_rows), Operand("expert_num_tokens", written, args.expert_num_tokens),
      Operand("expert_load", written, args.expert_load), Operand("fault", written, args.fault),
      Operand("workspace", written, workspace)});
}

}  // namespace moecl
