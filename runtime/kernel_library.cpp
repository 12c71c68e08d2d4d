#include "runtime/kernel_library.hpp"

#include <CL/cl.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>

#include "runtime/check.hpp"
#include "runtime/program_build.hpp"

namespace moecl {

/// One program and the lock under which it is built, so that other programs build in parallel.
struct KernelLibrary::Program {
  const Device& device;
  const ProgramSource& source;
  std::string options;
  std::string build_options;
  std::mutex building{};
  cl_program handle = nullptr;
  std::vector<cl_program> outlived{};  ///< replaced by programs with more code; launches may still use them
  StoredProgram stored{};
  bool known = false;  ///< whether the disk cache has been asked for it
  bool unsaved = false;

  ProgramKey key() const { return {source.name, source.text, build_options, &device}; }
  bool was_tried(std::string_view target) const {
    return std::any_of(stored.trials.begin(), stored.trials.end(),
                       [&](std::string_view trial) { return trial.substr(0, trial.find(' ')) == target; });
  }
  /// For messages.
  std::string what() const {
    return fmt::format("program {} with '{}' does not build on '{}'", source.name, build_options, device.caps.name);
  }
};

struct KernelLibrary::Pool {
  /// A shape of launches for which the program has code.
  struct Shape {
    std::array<std::size_t, 3> local;
    bool wide;
    bool operator==(const Shape&) const = default;
  };
  cl_program program;
  std::string options, kernel;
  cl_uint arity = 0;
  std::vector<cl_kernel> idle;
  std::vector<Shape> shapes{};
  Turn* turn = nullptr;

  ~Pool() {
    for (cl_kernel unused : idle) clReleaseKernel(unused);
  }
};

namespace {

/// -w: otherwise PoCL writes the number of warnings to stderr, which belongs to the caller.
std::string build_options(const Device& device, std::string_view options, int context_number) {
  std::string all = device.caps.correctly_rounded_divide ? "-w -cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt "
                                                         : "-w -cl-std=CL1.2 ";
  all += options;
  if (context_number != 0) all += fmt::format(" -D MOECL_CONTEXT={}", context_number);  // read by no kernel
  return all;
}

cl_kernel create_kernel(cl_program program, const KernelKey& key) {
  cl_int status = CL_SUCCESS;
  cl_kernel kernel = clCreateKernel(program, key.kernel, &status);
  if (status != CL_SUCCESS) fail_cl(status, "clCreateKernel of {} in program {}", key.kernel, key.source->name);
  return kernel;
}

cl_uint arity_of(cl_kernel kernel) {
  cl_uint arity = 0;
  check_cl(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(arity), &arity, nullptr), "clGetKernelInfo");
  return arity;
}

/// PoCL generates separate code for narrow and wide grids.
bool has_wide_code(const Device& device) {
  return device.caps.platform_name.find("Portable Computing Language") != std::string::npos;
}

/// PoCL before 6.0 finds the code of a finished launch by program, kernel and local size. The codes for narrow and wide
/// grids share this key. With both in flight PoCL decrements the count of the wrong entry and aborts.
bool grids_collide(const Device& device) {
  return has_wide_code(device) && std::atoi(device.caps.driver_version.c_str()) < 6;
}

constinit std::atomic<std::uint64_t> numbers_taken{0};  ///< by the living contexts of this process
constexpr int numbers = 64;                             ///< contexts beyond these share the next number

}  // namespace

KernelLibrary::Number::Number(bool wanted) noexcept {
  if (!wanted) return;
  std::uint64_t taken = numbers_taken.load();
  do value = std::countr_one(taken);
  while (value < numbers && !numbers_taken.compare_exchange_weak(taken, taken | std::uint64_t{1} << value));
  owned = value < numbers;
}

KernelLibrary::Number::~Number() {
  if (owned) numbers_taken.fetch_and(~(std::uint64_t{1} << value));
}

std::size_t KernelLibrary::IdHash::operator()(const Id& id) const noexcept {
  const auto mix = [](std::uint64_t seed, std::string_view text) {
    return XXH3_64bits_withSeed(text.data(), text.size(), seed);
  };
  return mix(mix(reinterpret_cast<std::uintptr_t>(id.device) ^ reinterpret_cast<std::uintptr_t>(id.source), id.options),
             id.kernel);
}

KernelLibrary::KernelLibrary(Context& context, const ContextOptions& options)
    : context_(context),
      wide_code_(has_wide_code(context.devices().front())),
      grids_collide_(grids_collide(context.devices().front())),
      number_(grids_collide_),
      in_helper_(options.compile == Compile::helper),
      compiler_(Compiler::shared()),
      compile_deadline_(*options.compile_deadline),
      cache_(context, options) {}

KernelLibrary::~KernelLibrary() {
  for (auto& [id, program] : programs_) {
    if (program->handle != nullptr) clReleaseProgram(program->handle);
    for (cl_program replaced : program->outlived) clReleaseProgram(replaced);
  }
}

KernelLibrary::Program& KernelLibrary::find(const Device& device, const KernelKey& key) {
  const std::lock_guard lock(mutex_);
  if (const auto found = programs_.find({&device, key.source, key.options, {}}); found != programs_.end())
    return *found->second;
  std::unique_ptr<Program> made(
      new Program{device, *key.source, std::string(key.options), build_options(device, key.options, number_.value)});
  Program& program = *made;
  programs_.emplace(Id{&device, key.source, program.options, {}}, std::move(made));
  return program;
}

cl_program KernelLibrary::program(const Device& device, const KernelKey& key, const Trial* trial) {
  Program& program = find(device, key);
  const std::lock_guard lock(program.building);
  const std::string target = trial != nullptr ? trial->target() : "";
  if (!std::exchange(program.known, true)) refresh(program);
  if (has_code(program, trial)) return program.handle;
  // Ranks that start together compile each program once. A stopped rank makes the others wait no longer than this.
  constexpr std::chrono::milliseconds others_compile{20'000};
  const CacheFolder::Lock alone =
      in_helper_ ? cache_.lock(program.key(), std::min(compile_deadline_, others_compile)) : CacheFolder::Lock();
  if (in_helper_) refresh(program);
  if (has_code(program, trial)) return program.handle;
  const auto start = std::chrono::steady_clock::now();
  const bool by_helper = in_helper_ && build_in_helper(program, trial);
  if (!by_helper) build_here(program, trial);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  context_.log(LogLevel::info, fmt::format("built {}{}{} for '{}' in {:.0f} ms {}: {}", key.source->name,
                                           target.empty() ? "" : ", ", target, device.caps.name, took.count(),
                                           by_helper ? "in a helper" : "in this process", key.options));
  return program.handle;
}

bool KernelLibrary::has_code(const Program& program, const Trial* trial) const {
  const std::string target = trial != nullptr ? trial->target() : "";
  for (const std::string& dead : {std::string(), target})
    if (const auto found = program.stored.dead.find(dead); found != program.stored.dead.end())
      fail(ErrorCode::build_failed, "{}, as was seen before: {}", program.what(), found->second);
  return program.handle != nullptr && (trial == nullptr || program.was_tried(target));
}

void KernelLibrary::refresh(Program& program) {
  std::optional<StoredProgram> stored = cache_.load(program.key());
  if (!stored || (stored->trials == program.stored.trials && stored->dead == program.stored.dead)) return;
  program.stored = std::move(*stored);
  if (program.stored.binary.empty()) return;
  take_binary(program);
  if (program.handle != nullptr)
    ++context_.counters().programs_from_disk;
  else
    program.stored.trials.clear();
}

void KernelLibrary::take_binary(Program& program) {
  if (program.handle != nullptr) program.outlived.push_back(program.handle);
  program.handle = build_from_binary(context_.handle(), program.device, program.stored.binary, program.build_options);
  if (program.handle == nullptr)
    context_.log(LogLevel::warning, fmt::format("program cache: the driver of '{}' refuses its own binary of {}",
                                                program.device.caps.name, program.source.name));
}

bool KernelLibrary::build_in_helper(Program& program, const Trial* trial) {
  const std::string target = trial != nullptr ? trial->target() : "";
  std::vector<std::string> trials = program.stored.trials;
  if (trial != nullptr) trials.push_back(trial->text());
  Compiled compiled = compiler_->compile(program.device, program.source.name, program.source.text,
                                         program.build_options, trials, compile_deadline_);
  using Outcome = Compiled::Outcome;
  if (compiled.outcome == Outcome::unusable) {
    if (in_helper_.exchange(false))
      context_.log(LogLevel::warning, "kernels are compiled in this process: " + compiled.why);
    return false;
  }
  if (compiled.outcome == Outcome::refused) throw Error(ErrorCode::build_failed, compiled.why, compiled.cl_status);
  if (compiled.outcome != Outcome::built) {
    const std::string what = program.what();
    context_.log(LogLevel::warning, fmt::format("{}: {}", what, compiled.why));
    if (compiled.outcome == Outcome::died) {
      program.stored.dead[target] = compiled.why;
      cache_.store(program.key(), program.stored);
    }
    fail(ErrorCode::build_failed, "{}: {}", what, compiled.why);
  }
  ++context_.counters().programs_built;
  program.stored.binary = std::move(compiled.binary);
  program.stored.trials = std::move(trials);
  take_binary(program);
  if (program.handle == nullptr) return false;
  cache_.store(program.key(), program.stored);
  return true;
}

void KernelLibrary::build_here(Program& program, const Trial* trial) {
  if (program.handle == nullptr) {
    program.handle = build_from_source(context_.handle(), program.device, program.source.name, program.source.text,
                                       program.build_options);
    ++context_.counters().programs_built;
  }
  if (trial != nullptr) program.stored.trials.push_back(trial->text());
  program.unsaved = true;
}

void KernelLibrary::save() noexcept {
  if (!cache_.has_folder()) return;  // for its binary PoCL compiles every kernel once more, for any work-group
  std::vector<Program*> built;
  try {
    const std::lock_guard lock(mutex_);
    for (auto& [id, program] : programs_) built.push_back(program.get());
  } catch (const std::bad_alloc&) {  // only programs listed so far are saved, others compiled again
  }
  for (Program* program : built) {
    const std::lock_guard lock(program->building);
    if (!std::exchange(program->unsaved, false)) continue;
    try {
      program->stored.binary = binary_of(program->handle, program->device);
      cache_.store(program->key(), program->stored);
    } catch (const std::exception& error) {
      try {
        context_.log(LogLevel::warning, fmt::format("no binary of {}: {}", program->source.name, error.what()));
      } catch (const std::exception&) {  // no memory for words
      }
    }
  }
}

KernelLibrary::Pool& KernelLibrary::pool(const Device& device, const KernelKey& key, const Trial& trial) {
  cl_program built = program(device, key, &trial);
  cl_kernel kernel = create_kernel(built, key);
  std::unique_ptr<Pool> made(new Pool{built, std::string(key.options), key.kernel, 0, {kernel}});
  made->arity = arity_of(kernel);
  const std::lock_guard lock(mutex_);
  const Id id{&device, key.source, made->options, made->kernel};
  const auto [entry, added] = pools_.try_emplace(id, std::move(made));
  Pool& pool = *entry->second;
  if (pool.turn == nullptr) {
    auto turn = std::make_unique<Turn>();  // allocated first: an entry of the map must never be null
    pool.turn =
        turns_.try_emplace({nullptr, key.source, pool.options, pool.kernel}, std::move(turn)).first->second.get();
  }
  if (!added) {
    // The newest program has the code of all trials so far.
    for (cl_kernel old : std::exchange(pool.idle, std::exchange(made->idle, {}))) clReleaseKernel(old);
    pool.program = built;
  }
  pool.shapes.push_back({trial.local, trial.wide});
  return pool;
}

KernelLibrary::Lease::Lease(KernelLibrary& library, const Device& device, const KernelKey& key, const NdRange& range,
                            std::span<const KernelArg> args)
    : library_(library) {
  const bool wide =
      library.wide_code_ && *std::max_element(range.global.begin(), range.global.end()) >= Trial::wide_grid;
  const Pool::Shape shape{range.local, wide};
  std::unique_lock lock(library_.mutex_);
  const auto found = library_.pools_.find({&device, key.source, key.options, key.kernel});
  if (found != library_.pools_.end()) pool_ = found->second.get();
  if (pool_ == nullptr || std::find(pool_->shapes.begin(), pool_->shapes.end(), shape) == pool_->shapes.end()) {
    lock.unlock();
    pool_ = &library_.pool(device, key, {key.kernel, range.local, wide, args});
    lock.lock();
  }
  program_ = pool_->program;
  if (!pool_->idle.empty()) {
    handle_ = pool_->idle.back();
    pool_->idle.pop_back();
    return;
  }
  lock.unlock();
  handle_ = create_kernel(program_, key);
}

KernelLibrary::Lease::~Lease() {
  const std::lock_guard lock(library_.mutex_);
  if (program_ == pool_->program) {
    try {
      pool_->idle.push_back(handle_);
      return;
    } catch (const std::bad_alloc&) {  // the next launch makes another
    }
  }
  clReleaseKernel(handle_);  // also of a program that another one has replaced
}

std::uint32_t KernelLibrary::Lease::arity() const noexcept { return pool_->arity; }

LaunchTurns* KernelLibrary::Lease::take_turn(std::unique_lock<std::mutex>& lock) const {
  if (!library_.grids_collide_) return nullptr;
  lock = std::unique_lock(pool_->turn->mutex);
  return library_.several_queues_ ? &pool_->turn->launches : nullptr;
}

void KernelLibrary::add_queue(cl_command_queue queue) {
  if (!grids_collide_) return;
  const std::lock_guard lock(mutex_);
  if (several_queues_) return;
  if (first_queue_ == nullptr) first_queue_ = queue;
  if (queue == first_queue_)
    ++first_queue_users_;
  else
    begin_turns();
}

void KernelLibrary::remove_queue(cl_command_queue queue) noexcept {
  if (!grids_collide_) return;
  const std::lock_guard lock(mutex_);
  // The queue's last launches may outlive the queue.
  if (!several_queues_ && queue == first_queue_ && --first_queue_users_ == 0) begin_turns();
}

void KernelLibrary::begin_turns() noexcept {
  several_queues_ = true;
  for (auto& [id, turn] : turns_) {
    const std::lock_guard lock(turn->mutex);
    cl_event launched = nullptr;  // whatever the first queue launched while it was alone
    clEnqueueMarkerWithWaitList(first_queue_, 0, nullptr, &launched);
    Event end(launched);
    try {
      turn->launches.next() = std::move(end);
    } catch (const std::bad_alloc&) {
      clFinish(first_queue_);
    }
  }
  clFlush(first_queue_);
}

}  // namespace moecl
