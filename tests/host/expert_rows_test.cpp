// A layer's experts in the caller's own exchange, against double precision: rows packed expert by expert or in room of
// equal size for each expert, every form of the experts' results, and impossible counts.
#include <moecl/expert_rows.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/devices.hpp"
#include "tests/host/files.hpp"
#include "tests/host/layer_forms.hpp"

namespace moecl::test {
namespace {

using testing::HasSubstr;

/// The tokens of a form as an exchange brings them, by expert and then token. Rows without a token are NaN.
struct Brought {
  const LayerForm& form;
  std::int64_t room;                ///< rows reserved for each expert; 0: rows of all experts are contiguous
  std::vector<double> counts;       ///< of each expert
  std::vector<std::int64_t> slots;  ///< of each row; -1: the row has no token
  std::vector<double> row_of_slot;  ///< the reverse; -1: the slot has no row

  Brought(const LayerForm& of, bool batched)
      : form(of), room(0), counts(static_cast<std::size_t>(of.layer.shape.experts)) {
    std::vector<std::vector<std::int64_t>> by_expert(counts.size());
    for (std::size_t slot = 0; slot < form.chosen.size(); ++slot)
      if (const double id = form.chosen[slot]; id >= 0 && id < static_cast<double>(counts.size()))
        by_expert[static_cast<std::size_t>(id)].push_back(static_cast<std::int64_t>(slot));
    for (std::size_t e = 0; e < counts.size(); ++e) {
      counts[e] = static_cast<double>(by_expert[e].size());
      if (batched) room = std::max(room, std::ssize(by_expert[e]) + 1);
    }
    for (std::vector<std::int64_t>& of_expert : by_expert) {
      if (batched) of_expert.resize(static_cast<std::size_t>(room), -1);
      slots.insert(slots.end(), of_expert.begin(), of_expert.end());
    }
    if (!batched) slots.resize(slots.size() + 3, -1);
    row_of_slot.assign(form.chosen.size(), -1);
    for (std::size_t row = 0; row < slots.size(); ++row)
      if (slots[row] >= 0) row_of_slot[static_cast<std::size_t>(slots[row])] = static_cast<double>(row);
  }
  std::int64_t rows() const { return std::ssize(slots); }
  /// The values in `all` of each row's token. @param of_slots  `all` has a row for each slot, not for each token
  std::vector<double> gathered(const std::vector<double>& all, std::int64_t columns, bool of_slots = false) const {
    const std::int64_t each = of_slots ? 1 : form.layer.shape.router.top_k;
    std::vector<double> rows(slots.size() * static_cast<std::size_t>(columns),
                             std::numeric_limits<double>::quiet_NaN());
    for (std::size_t row = 0; row < slots.size(); ++row)
      if (slots[row] >= 0)
        std::copy_n(all.begin() + slots[row] / each * columns, columns,
                    rows.begin() + static_cast<std::ptrdiff_t>(row) * columns);
    return rows;
  }
  /// The rows in the order of slots; a slot without a row gets 0.
  std::vector<double> by_slot(const std::vector<double>& rows, std::int64_t columns) const {
    std::vector<double> all(row_of_slot.size() * static_cast<std::size_t>(columns));
    for (std::size_t slot = 0; slot < row_of_slot.size(); ++slot)
      if (row_of_slot[slot] >= 0)
        std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(row_of_slot[slot]) * columns, columns,
                    all.begin() + static_cast<std::ptrdiff_t>(slot) * columns);
    return all;
  }
};

/// e4m3 has a NaN, int8 has none.
std::vector<double> as_codes(DType dtype, std::vector<double> values) {
  for (double& value : values)
    if (dtype == DType::i8 && std::isnan(value)) value = 127;
  return values;
}

class ExpertRowsTest : public OnEveryDevice {
 protected:
  StreamView stream() const { return device().stream; }
  MoeLayer made(const LayerForm& form, ExpertLayout layout = ExpertLayout::standard) const {
    MoeLayerOptions options = form.options;
    options.layout = layout;
    return {stream(), form.layer.shape, form.layer.weights(), options};
  }
  /// The experts' results: of each slot, or of each token if the experts sum.
  std::vector<double> given_back(const MoeLayer& layer, const Brought& brought, ExpertOutput output, DType out_dtype,
                                 DType counts_dtype) const {
    const LayerForm& form = brought.form;
    const std::int64_t width = form.layer.shape.expert_width(), rows = brought.rows(), room = brought.room,
                       experts = form.layer.shape.experts, top_k = form.layer.shape.router.top_k;
    const bool codes = !form.scales.empty(), sums = output == ExpertOutput::sums;
    const DType dtype = codes ? form.code_dtype : form.options.dtype;
    const std::vector<double> x_values =
        as_codes(dtype, brought.gathered(form.input.empty() ? form.x : form.input, width));
    const GuardedTensor x = room > 0 ? upload(device(), dtype, {experts, room, width}, x_values)
                                     : upload(device(), dtype, {rows, width}, x_values);
    const GuardedTensor counts = upload(device(), counts_dtype, {experts}, brought.counts),
                        weights = upload(device(), DType::f32, {rows}, brought.gathered(form.weights, 1, true)),
                        slot_rows = upload(device(), DType::i32, {form.tokens(), top_k}, brought.row_of_slot),
                        scale = upload(device(), codes ? form.scale_dtype : DType::f32,
                                       {codes ? rows : 1, codes ? form.scale_columns() : 1},
                                       codes ? as_codes(DType::i8, brought.gathered(form.scales, form.scale_columns()))
                                             : std::vector<double>(1)),
                        fault = upload(device(), DType::i32, {4}, std::vector<double>(4)),
                        out(device(), out_dtype, {sums ? form.tokens() : rows, width});
    const Buffer workspace(*stream().context, layer.expert_workspace_bytes(rows, sums ? form.tokens() * top_k : 0));
    ExpertRows args;
    args.x = x;
    if (codes) args.x_scale = scale, args.x_group = form.group;
    args.expert_num_tokens = counts;
    if (output != ExpertOutput::rows) args.weights = weights;
    if (sums) args.slot_rows = slot_rows;
    args.out = out;
    args.workspace = workspace.view();
    args.fault = fault;
    Event done;
    for (int pass = 0; pass < 2; ++pass) layer.forward_experts(stream(), args, {{}, &done});  // the second as planned
    done.wait();
    check_fault(stream(), fault);
    return sums ? out.values() : brought.by_slot(out.values(), width);
  }
};
MOECL_ON_EVERY_DEVICE(ExpertRowsTest);

TEST_P(ExpertRowsTest, AreTheExpertsOfTheLayerWhateverTheyGiveBack) {
  for (LayerForm form : layer_forms(device().caps())) {
    if (form.layer.shape.special_experts() > 0) continue;  // no exchange brings rows for these
    SCOPED_TRACE(form.name);
    const MoeLayer layer = made(form);
    const std::int64_t width = form.layer.shape.expert_width();
    std::vector<double> weighted = form.rows;
    for (std::size_t i = 0; i < weighted.size(); ++i) weighted[i] *= form.weights[i / static_cast<std::size_t>(width)];
    const double exact = form.tolerance;
    for (const bool batched : {false, true}) {
      const Brought brought(form, batched);
      for (const DType dtype : {DType::f32, DType::bf16}) {
        form.tolerance = dtype == DType::f32 ? exact : std::max(exact, 0x1p-8);
        const auto given = [&](ExpertOutput output) {
          return given_back(layer, brought, output, dtype, batched ? DType::i64 : DType::i32);
        };
        expect_form(form, given(ExpertOutput::rows), form.rows, "rows");
        expect_form(form, given(ExpertOutput::weighted_rows), weighted, "weighted rows");
        expect_form(form, given(ExpertOutput::sums), form.routed, "sums");
      }
      form.tolerance = exact;
    }
  }
}

// A layer in the batched layout, which CLBlast may multiply, takes rows in that layout from the caller's exchange.
TEST_P(ExpertRowsTest, OfALayerInTheBatchedLayout) {
  const LayerForm form = layer_forms(device().caps())[8];  // latent experts
  const MoeLayer layer = made(form, ExpertLayout::batched);
  const Brought brought(form, true);
  expect_form(form, given_back(layer, brought, ExpertOutput::rows, DType::f32, DType::i32), form.rows, "rows");
  expect_form(form, given_back(layer, brought, ExpertOutput::sums, DType::f32, DType::i32), form.routed, "sums");
}

TEST_P(ExpertRowsTest, OfALayerThatHasRoomForSomeExperts) {
  LayerForm form = layer_forms(device().caps())[8];  // latent experts
  form.options.budget.percent = 34;
  const MoeLayer layer = made(form);
  for (const bool batched : {false, true})
    expect_form(form, given_back(layer, Brought(form, batched), ExpertOutput::sums, DType::f32, DType::i32),
                form.routed, "sums");
  EXPECT_GT(layer.residency(stream()).misses, 0);
}

/// Small tensors of a form without codes, for the tests of refusals.
struct SmallLayer {
  LayerForm form;
  MoeLayer layer;
  GuardedTensor x, counts, ends, weights, slots, out, fault;
  Buffer workspace;

  explicit SmallLayer(TestDevice& device)
      : form(layer_forms(device.caps())[8]),
        layer(device.stream, form.layer.shape, form.layer.weights(), form.options),
        x(upload(device, DType::f32, {6, 4, 48}, std::vector<double>(6 * 4 * 48, 1))),
        counts(upload(device, DType::i32, {6}, {1, 1, 1, 1, 1, 1})),
        ends(upload(device, DType::i32, {6}, {1, 2, 3, 4, 5, 6})),
        weights(upload(device, DType::f32, {6, 4}, std::vector<double>(24, 1))),
        slots(upload(device, DType::i32, {5, 2}, std::vector<double>(10, -1))),
        out(device, DType::f32, {6, 4, 48}),
        fault(upload(device, DType::i32, {4}, std::vector<double>(4))),
        workspace(*device.stream.view().context, layer.expert_workspace_bytes(24, 10)) {}
  ExpertRows args() const {
    ExpertRows rows;
    rows.x = x;
    rows.expert_num_tokens = counts;
    rows.out = out;
    rows.workspace = workspace.view();
    rows.fault = fault;
    return rows;
  }
};

TEST_P(ExpertRowsTest, CountsThatCannotBeAreAFault) {
  const SmallLayer small(device());
  const auto fault_of = [&](DType dtype, const std::vector<double>& counts, bool batched) {
    const GuardedTensor given = upload(device(), dtype, {6}, counts),
                        fault = upload(device(), DType::i32, {4}, std::vector<double>(4));
    ExpertRows args = small.args();
    if (!batched) args.x = TensorView(args.x.buffer, DType::f32, {24, 48});
    args.expert_num_tokens = given;
    args.fault = fault;
    small.layer.forward_experts(stream(), args);
    small.out.check_guards();
    return std::string(error_of([&] { check_fault(stream(), fault); }).what());
  };
  EXPECT_THAT(fault_of(DType::i32, {4, 4, 5, 4, 4, 4}, true), HasSubstr("entry 2 has 5 rows, more than it has room"));
  EXPECT_THAT(fault_of(DType::i64, {4, -1, 4, 4, 4, 4}, true), HasSubstr("entry 1 makes the negative count -1"));
  EXPECT_THAT(fault_of(DType::i64, {9, 0, 0, 9, 0, 7}, false), HasSubstr("with expert 5 the sum passes the 24 rows"));
}

TEST_P(ExpertRowsTest, NoRowsLeaveSumsOfZero) {
  const SmallLayer small(device());
  const GuardedTensor none = upload(device(), DType::i32, {6}, std::vector<double>(6)),
                      sums(device(), DType::bf16, {5, 48});
  for (const std::int64_t room : {4, 0}) {
    ExpertRows args = small.args();
    args.x = TensorView(args.x.buffer, DType::f32, {6, room, 48});
    args.expert_num_tokens = none;
    args.slot_rows = small.slots;
    args.out = sums;
    small.layer.forward_experts(stream(), args);
    EXPECT_EQ(sums.values(), std::vector<double>(5 * 48));
  }
}

TEST_P(ExpertRowsTest, RefusesWhatDoesNotFit) {
  const SmallLayer small(device());
  const auto refused = [&](const char* text, const std::function<void(ExpertRows&)>& spoil) {
    ExpertRows args = small.args();
    spoil(args);
    const std::uint64_t before = device().context->counters().kernels_launched;
    EXPECT_THAT(error_of([&] { small.layer.forward_experts(stream(), args); }).what(), HasSubstr(text));
    EXPECT_EQ(device().context->counters().kernels_launched, before);
  };
  const auto as = [](const TensorView& view, DType dtype, std::initializer_list<std::int64_t> dims) {
    return TensorView(view.buffer, dtype, dims);
  };
  refused("x: expected [N, 48] or [6, M, 48], got f32[1152]",
          [&](ExpertRows& a) { a.x = as(a.x, DType::f32, {1152}); });
  refused("x: expected contiguous [6, M, 48], got f32[4, 6, 48]", [&](ExpertRows& a) {
    a.x = as(a.x, DType::f32, {4, 6, 48});
  });
  refused("has room for 4 rows of each of 6 experts, not 5 of 0", [](ExpertRows& a) { a.rows_per_expert = 5; });
  refused("x: expected f32, got bf16[24, 48]", [&](ExpertRows& a) { a.x = as(a.x, DType::bf16, {6, 4, 48}); });
  refused("row_ends and expert_num_tokens: give one of them", [](ExpertRows& a) { a.expert_num_tokens = {}; });
  refused("row_ends and expert_num_tokens: give one of them", [&](ExpertRows& a) { a.row_ends = small.ends; });
  refused("expert_num_tokens: expected contiguous i32 or i64[6], got i32[4]",
          [](ExpertRows& a) { a.expert_num_tokens = a.fault; });
  refused("weights: expected contiguous f32[24], got i32[6]", [&](ExpertRows& a) { a.weights = small.counts; });
  refused("slot_rows: expected contiguous i32[M, S], got i32[6]", [&](ExpertRows& a) { a.slot_rows = small.counts; });
  refused("out: expected contiguous [5, 48], got f32[6, 4, 48]", [&](ExpertRows& a) { a.slot_rows = small.slots; });
  refused("out: expected f32, f16 or bf16, got i32[6]", [&](ExpertRows& a) { a.out = small.counts; });
  refused("expected_rows: -1 is negative", [](ExpertRows& a) { a.expected_rows = -1; });
  refused("workspace: 24 rows need", [](ExpertRows& a) { a.workspace.size_bytes /= 2; });
  refused("workspace: byte offset 8 is no multiple of 16", [](ExpertRows& a) { a.workspace.offset_bytes += 8; });
  refused("x and out overlap", [](ExpertRows& a) { a.out = a.x; });
  refused("x: got i8[24, 48] with scales f32[24] of 16 columns (0: a row)", [&](ExpertRows& a) {
    a.x = as(a.x, DType::i8, {24, 48});
    a.x_scale = as(small.weights, DType::f32, {24});
    a.x_group = 16;
  });
}

}  // namespace
}  // namespace moecl::test
