#include <moecl/dense_backend.hpp>
#include <moecl/error.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/tuned_choices.hpp>
#include <moecl/tuning_table.hpp>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "bench/device.hpp"
#include "runtime/atomic_file.hpp"
#include "tools/commands.hpp"
#include "tools/device_options.hpp"
#include "tools/printable.hpp"
#include "tools/progress.hpp"
#include "tools/table.hpp"
#include "tools/tune_measurements.hpp"

namespace moecl::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The user's table of that name, and its entry for exactly this device.
class UserTable {
 public:
  /// Errors: io_error  nothing tells where the user's data are; invalid_data  the table is damaged
  UserTable(const std::string& name, const DeviceCaps& caps) : path_(tuning::user_file(name)) {
    if (path_.empty())
      throw Error(ErrorCode::io_error, "tune: neither XDG_DATA_HOME nor HOME says where the user's data are");
    for (const tuning::Table& table : tuning::tables(name, ""))
      if (table.origin == path_) text_ = table.text;
    const Json match = {{"platform", caps.platform_name}, {"device", caps.name}};
    try {
      for (const tuning::Entry& before : tuning::matching_entries(text_, caps))
        if (Json found = Json::parse(before.text); nlohmann::json(found["match"]) == nlohmann::json(match))
          entry = found;
    } catch (const Error& error) {
      throw Error(ErrorCode::invalid_data, fmt::format("{}: {}; remove it to tune anew", path_, error.what()));
    }
    entry["match"] = match;
    entry["measured_on"] = fmt::format("this device, driver {}, by moecl tune", caps.driver_version);
    const bool dense = name == "dense_backend";
    for (const char* member : dense ? std::vector{"dense", "batched"} : std::vector{"choices"})
      if (!entry.contains(member)) entry[member] = dense ? Json::array() : Json::object();
  }

  /// Writes the table atomically: the file has the old or the new content, never a part.
  void write() const {
    std::error_code failed;
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(),
                                        failed);  // the file's error says what is wrong
    const std::string text = tuning::with_entry(text_, entry.dump());
    AtomicFile file(path_);
    file.write(text.data(), text.size());
    file.commit();
  }
  const std::string& path() const { return path_; }

  Json entry = Json::object();

 private:
  std::string path_, text_ = R"({"entries": []})";
};

/// Lists the choices that the next run will make.
void list() {
  Device device = *bench::stream().device;
  const DeviceCaps& caps = device.caps;
  device.tuning = tuning::read(caps);
  std::set<std::string> problems(device.tuning.problems.begin(), device.tuning.problems.end());
  std::vector<Row> rows = {{"choice", "value", "where it comes from"}};
  for (const auto& lines : {tuning::describe(device), grouped_gemm::describe_choices(device)})
    for (const tuning::Line& line : lines) rows.push_back({line.name, line.value, line.origin});
  for (const auto& [name, choice] : {std::pair("dense products", dense_backend::select(caps, DType::f32)),
                                     std::pair("batched products", dense_backend::select_batched(caps, DType::f32))}) {
    rows.push_back({name, dense_backend::name(choice.backend), choice.reason});
    if (!choice.problem.empty()) problems.insert(choice.problem);
  }
  fmt::print("{} / {}\n{}", printable(caps.platform_name), printable(caps.name), table(rows, 0));
  for (const std::string& problem : problems) fmt::print("{}\n", printable(problem));
}

/// The choices measured so far. The alarm's thread also reports them.
class Tuned {
 public:
  explicit Tuned(std::size_t wanted) : wanted_(wanted) {}

  void add(const Measurement& of, const std::string& found, const UserTable& table) {
    const std::lock_guard lock(mutex_);
    table.write();  // at once, so that an interruption loses nothing
    paths_.insert(table.path());
    progress_.hide();
    fmt::print("{}: {}\n", of.name, found);
    std::fflush(stdout);
    progress_(++done_, static_cast<std::int64_t>(wanted_));
  }
  ExitCode conclude() {
    const std::lock_guard lock(mutex_);
    progress_.hide();
    if (done_ < static_cast<std::int64_t>(wanted_))
      fmt::print("the time was over after {} of {} choices\n", done_, wanted_);
    if (paths_.empty()) fmt::print("nothing is written\n");
    for (const std::string& path : paths_) fmt::print("wrote {}\n", printable(path));
    std::fflush(stdout);
    return paths_.empty() ? check_failed : cli::done;
  }

 private:
  std::mutex mutex_;
  std::size_t wanted_;
  std::int64_t done_ = 0;
  std::set<std::string> paths_;
  Progress progress_{"tune"};
};

int tune(Deadline deadline, const std::string& filter) {
  std::map<std::string, UserTable> tables;
  for (const char* name : {"operators", "dense_backend"})
    tables.emplace(name, UserTable(name, bench::stream().device->caps));
  std::vector<Measurement> wanted = tuning_measurements();
  std::vector<std::string> names;
  for (const Measurement& of : wanted) names.push_back(of.name);
  wanted.erase(std::remove_if(wanted.begin(), wanted.end(),
                              [&](const Measurement& of) { return of.name.find(filter) == std::string::npos; }),
               wanted.end());
  if (wanted.empty())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--filter: no choice has '{}' in its name{}", filter, did_you_mean(filter, names)));
  Tuned tuned(wanted.size());
  {
    // A driver that is compiling cannot be asked to stop.
    const Alarm alarm(deadline.end(), [&tuned] { std::_Exit(tuned.conclude()); });
    for (const Measurement& of : wanted) {
      UserTable& table = tables.at(of.table);
      const std::string found = of.run(deadline, table.entry);
      if (found.empty()) break;
      tuned.add(of, found, table);
    }
  }
  const ExitCode result = tuned.conclude();
  if (result == done) list();
  return result;
}

}  // namespace

void add_tune(CLI::App& app, Outcome outcome) {
  struct Options {
    DeviceOptions device;
    double time_limit = 60;
    std::string filter;
    bool list = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("tune", "Measure what is fastest on the device, for the user's tables");
  options->device.add_to(*command);
  command
      ->add_option("--time-limit", options->time_limit,
                   "end within so many seconds, of which opening the device and compiling are a part")
      ->check(seconds(0, 1e6))
      ->type_name("SECONDS")
      ->capture_default_str();
  command->add_option("--filter", options->filter, "only choices with this in their names; --list shows them")
      ->type_name("TEXT");
  command->add_flag("--list", options->list, "show what is chosen and where it comes from, and measure nothing");
  add_progress(*command);
  command->callback([options, &outcome] {
    const Deadline deadline(Deadline::Clock::now(), options->time_limit);
    bench::use(options->device.open());
    if (options->list)
      list();
    else
      outcome = tune(deadline, options->filter);
  });
}

}  // namespace moecl::cli
