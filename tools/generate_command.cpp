#include <moecl/error.hpp>
#include <moecl/model_shapes.hpp>
#include <moecl/random_checkpoint.hpp>

#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <sstream>

#include "tools/commands.hpp"
#include "tools/interruption.hpp"
#include "tools/printable.hpp"
#include "tools/progress.hpp"

namespace moecl::cli {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!(text << file.rdbuf())) throw Error(ErrorCode::io_error, fmt::format("{}: cannot be read", path));
  return text.str();
}

std::vector<std::string> known_shapes() {
  std::vector<std::string> names;
  for (const ModelShape& shape : model_shapes()) names.emplace_back(shape.name);
  return names;
}

struct Interrupted {};

/// Writes the checkpoint. When interrupted, it removes what it wrote before the signal ends it.
void write(const std::string& dir, RandomCheckpoint checkpoint) {
  Progress progress("writing tensors");
  checkpoint.before_tensor = [&progress](std::int64_t done, std::int64_t total) {
    if (interruption() != 0) throw Interrupted();
    progress(done, total);
  };
  note_interruption();
  try {
    write_random_checkpoint(dir, checkpoint);
  } catch (const Interrupted&) {
    progress.hide();
    std::raise(interruption());
  }
}

}  // namespace

void add_generate(CLI::App& app, Outcome) {
  struct Options {
    std::string dir, shape, config, router_spec, dtype = "bf16", scheme;
    RandomCheckpoint checkpoint;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("generate", "Write a checkpoint with random weights in the released layout of a family");
  command->add_option("dir", options->dir, "directory to write")->type_name("DIR")->required();
  auto* shape = command->add_option("--shape", options->shape, "named model shape")
                    ->check(one_of(known_shapes()))
                    ->type_name("NAME");
  auto* config = command->add_option("--config", options->config, "config.json to follow instead")
                     ->check(file_name())
                     ->type_name("FILE")
                     ->excludes(shape);
  command->add_option("--router-spec", options->router_spec, "describe the layers by this file (host/ROUTER_SPEC.md)")
      ->check(file_name())
      ->type_name("FILE.json");
  command->add_option("--layers", options->checkpoint.layers, "MoE layers to write")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--experts", options->checkpoint.experts, "a slice of the experts (default: all)")
      ->check(whole_number(1));
  command->add_option("--dtype", options->dtype, "storage type")
      ->check(one_of({"f32", "f16", "bf16"}))
      ->capture_default_str();
  command->add_option("--scheme", options->scheme, "a packed quantization")
      ->check(one_of(known_schemes()))
      ->type_name("SCHEME");
  command->add_option("--seed", options->checkpoint.seed, "seed of the weights")
      ->check(whole_number(0, INT64_MAX))
      ->capture_default_str();
  add_progress(*command);
  command->callback([options, shape, config] {
    if (shape->count() + config->count() != 1)
      throw Error(ErrorCode::invalid_argument, "generate: give --shape or --config");
    options->checkpoint.scheme = scheme_named(options->scheme);
    const bool from_file = config->count() != 0;
    options->checkpoint.config_json = from_file ? read_text(options->config) : model_shape(options->shape).config_json;
    options->checkpoint.origin = from_file ? options->config : "config.json of " + options->shape;
    if (!options->router_spec.empty()) options->checkpoint.router_spec = read_text(options->router_spec);
    options->checkpoint.dtype = *dtype_from_name(options->dtype);
    write(options->dir, options->checkpoint);
    fmt::print("wrote {}\n", printable(options->dir));
  });
}

}  // namespace moecl::cli
