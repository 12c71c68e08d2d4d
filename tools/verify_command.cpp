#include <moecl/error.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/safetensors.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/commands.hpp"
#include "tools/layer_session.hpp"
#include "tools/printable.hpp"
#include "tools/progress.hpp"
#include "tools/tensor_values.hpp"
#include "tools/terminal.hpp"

namespace moecl::cli {
namespace {

/// The tensors of a golden file for a storage type, and how close a right run comes to them.
struct GoldenTensors {
  const char *input, *output, *margin;
  double tolerance;   ///< largest difference over the largest reference value
  double min_margin;  ///< tokens whose expert choice is closer than this may differ
};

/// Sums are f32 inside, whatever the storage type. The bf16 reference has weights and input rounded to bf16, so only
/// f32 rounding can differ. f16 has no reference: its tolerance covers rounding weights and input to 11 bits.
GoldenTensors golden_tensors(DType dtype) {
  if (dtype == DType::bf16) return {"bf16.hidden_states", "bf16.output_ref", "bf16.route_margin", 2e-5, 1e-4};
  return {"hidden_states", "output", "route_margin", dtype == DType::f16 ? 5e-3 : 2e-5, dtype == DType::f16 ? 1e-2 : 0};
}

/// Codes keep their values in every storage type, so the reference is that of an f32 run. Plain tensors beside them,
/// above all the router, are rounded if bf16 stores f16.
GoldenTensors golden_tensors_of_codes(DType dtype, std::optional<DType> in_checkpoint) {
  const bool rounded = dtype == DType::bf16 && in_checkpoint == DType::f16;
  return {"hidden_states", "output", "route_margin", rounded ? 5e-3 : 2e-5, rounded ? 1e-2 : 0};
}

/// The tolerance for the exchange between ranks. Int8 codes are off by up to 1/254 of a row's largest element: as f16's
/// tolerance, for 8 bits instead of 11. Codes of e4m3 are off by up to 1/16 of their value, which can affect both gate
/// and up. Over nodes, mc2 rounds each node's sums to the storage type.
double tolerance_of_exchange(const LayerOptions& options, const SessionReport& report, DType dtype) {
  if (options.wire == "int8") return 4e-2;
  if (options.wire != "none") return 2.0 / 16;
  const int nodes = options.ranks / options.ranks_per_node();
  if (nodes == 1 || report.strategy != "mc2" || dtype == DType::f32) return 0;
  return nodes * (dtype == DType::bf16 ? 1.0 / 256 : 1.0 / 2048);
}

/// The tolerance for rows between products. They are rounded to 16 bits where tensor cores or AVX-512 BF16 multiply
/// them: by 2^-9 of an element in bf16, by 2^-12 in f16.
double tolerance_of_rows(const SessionReport& report, DType dtype) {
  if (dtype == DType::f32) return 0;
  const CodeType type = dtype == DType::bf16 ? CodeType::bf16 : CodeType::f16;
  const auto rounds = [&](const DeviceCaps& caps) { return grouped_gemm::row_dtype(type, dtype, caps) == dtype; };
  if (std::none_of(report.devices.begin(), report.devices.end(), rounds)) return 0;
  return dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
}

/// A quotient next to a tie may round the other way, which changes a few outputs. Source: README of the goldens
constexpr GoldenTensors golden_of_quantized_activations = {"hidden_states", "actquant.output_ref", "route_margin", 5e-3,
                                                           1e-2};

struct Verdict {
  double error = 0, tolerance = 0;
  bool ok() const { return error <= tolerance; }  // false for NaN
};

Verdict verify(LayerOptions options, const std::string& dir) {
  options.model_dir = dir;
  const SafetensorsFile golden = SafetensorsFile::open(dir + "/golden.safetensors");
  const std::unique_ptr<LayerSession> opened = LayerSession::open(options);
  LayerSession& session = *opened;
  const auto hidden = static_cast<std::size_t>(session.config().shape.hidden);
  GoldenTensors names = session.config().quantization.present()
                            ? golden_tensors_of_codes(session.dtype(), ModelConfig::load(dir + "/config.json").dtype)
                            : golden_tensors(session.dtype());
  if (session.quantizes_activations())
    names = golden_of_quantized_activations;
  else if (!golden.has(names.output))
    names = golden_tensors(DType::f32);  // a case of no tokens has only these
  // A router weight that scales the input is rounded to the storage type, and so is its product with the input.
  if (session.config().shape.router.weight_on_input && session.dtype() == DType::bf16) names.tolerance = 8e-3;
  const std::vector<float> input = to_f32(golden.tensor(names.input)), expected = to_f32(golden.tensor(names.output));
  const std::vector<float> margin =
      golden.has(names.margin) ? to_f32(golden.tensor(names.margin)) : std::vector<float>{};
  if (input.size() % hidden != 0 || expected.size() != input.size() ||
      (!margin.empty() && margin.size() != input.size() / hidden))
    throw Error(ErrorCode::invalid_data,
                fmt::format("{}: {} golden inputs, {} outputs and {} margins are not those of tokens of {}", dir,
                            input.size(), expected.size(), margin.size(), hidden));
  ForwardTimes times;
  const LayerOutputs outputs = session.run(input, 1, times);
  if (!options.launch.tells()) return {};
  const SessionReport report = session.report();
  Verdict verdict{0, names.tolerance + tolerance_of_rows(report, session.dtype()) +
                         tolerance_of_exchange(options, report, session.dtype())};
  double largest = 1e-30;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!margin.empty() && static_cast<double>(margin[i / hidden]) < names.min_margin) continue;
    const double difference = std::abs(static_cast<double>(outputs.output[i]) - static_cast<double>(expected[i]));
    verdict.error = std::isnan(difference) ? difference : std::max(verdict.error, difference);
    if (std::isnan(difference)) return verdict;
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  verdict.error /= largest;
  return verdict;
}

/// The last part of a path, which may end in slashes, made safe for a terminal.
std::string case_name(const std::string& dir) {
  const std::string trimmed = dir.substr(0, dir.find_last_not_of('/') + 1);
  return printable(trimmed.substr(trimmed.rfind('/') + 1));
}

/// Prints a line as each case ends, so that a later case cannot lose it. Reports unusable cases on stderr.
int verify_all(const LayerOptions& options, const std::vector<std::string>& dirs) {
  std::size_t width = 4;  // of the heading
  for (const std::string& dir : dirs) width = std::max(width, case_name(dir).size());
  const auto print = [width](const std::string& name, const std::string& error, const std::string& tolerance,
                             const std::string& result) {
    fmt::print("{:<{}}  {:>7}  {:>9}  {}\n", name, width, error, tolerance, result);
    std::fflush(stdout);
  };
  int passed = 0, failed = 0;
  std::optional<Progress> progress;  // with one case, its loading shows progress instead
  const bool tells = options.launch.tells();
  if (dirs.size() > 1 && tells) progress.emplace("verify");
  std::int64_t ended = 0;
  for (const std::string& dir : dirs) {
    if (progress) (*progress)(ended++, static_cast<std::int64_t>(dirs.size()));
    try {
      const Verdict verdict = verify(options, dir);
      if (progress) progress->hide();
      if (!tells) continue;
      if (passed + failed == 0) print("case", "error", "tolerance", "result");
      print(case_name(dir), fmt::format("{:.1e}", verdict.error), fmt::format("{:.1e}", verdict.tolerance),
            cli::verdict(verdict.ok(), verdict.ok() ? "ok" : "FAIL"));
      ++(verdict.ok() ? passed : failed);
    } catch (const Error& error) {
      if (exit_code(error.code()) != unusable_input || options.launch.is_one_of_many()) throw;
      if (progress) progress->hide();
      report(fmt::format("{}: {}", case_name(dir), error.what()));
    }
  }
  if (!tells) return done;
  if (passed + failed > 0)
    fmt::print("{} passed, {}\n", passed, cli::verdict(failed == 0, fmt::format("{} failed", failed)));
  if (passed + failed < static_cast<int>(dirs.size())) return unusable_input;
  return failed == 0 ? done : check_failed;
}

}  // namespace

void add_verify(CLI::App& app, Outcome outcome) {
  auto options = std::make_shared<LayerOptions>();
  auto dirs = std::make_shared<std::vector<std::string>>();
  CLI::App* command =
      app.add_subcommand("verify", "Run the MoE block of every directory and compare with its golden.safetensors");
  command->add_option("dirs", *dirs, "directories with config.json, model.safetensors and golden.safetensors")
      ->type_name("DIR")
      ->required();
  options->add_to(*command);
  add_progress(*command);
  command->callback([options, dirs, &outcome] {
    outcome = options->launch.run(options->ranks, [&] { return verify_all(*options, *dirs); });
  });
}

}  // namespace moecl::cli
