#include "host/c_api/ranks.hpp"

namespace moecl::c_api {
namespace {

static_assert(static_cast<int>(TransportKind::shared_context) + 1 == MOECL_TRANSPORT_SHARED_CONTEXT &&
              static_cast<int>(TransportKind::staged) + 1 == MOECL_TRANSPORT_STAGED &&
              static_cast<int>(TransportKind::peer_window) + 1 == MOECL_TRANSPORT_PEER_WINDOW &&
              static_cast<int>(TransportKind::shared_memory) + 1 == MOECL_TRANSPORT_SHARED_MEMORY &&
              static_cast<int>(TransportKind::mpi) + 1 == MOECL_TRANSPORT_MPI);

constexpr std::int32_t last_transport = MOECL_TRANSPORT_MPI;
/// More ranks than any process has: a larger count was never set.
constexpr std::int32_t most_ranks = 1 << 16;
/// An upper bound of rows and columns, with which their products stay in range.
constexpr std::int64_t most_elements = std::int64_t{1} << 30;

GroupOptions group_options(const moecl_rank_group_options* given) {
  const auto from = read_options(given, "options");
  GroupOptions options;
  if (from.deadline_ms != 0) options.deadline = std::chrono::milliseconds(from.deadline_ms);
  require(from.transport >= MOECL_TRANSPORT_PROBED && from.transport <= last_transport,
          "options.transport: {} is not in [0, {}]", from.transport, last_transport);
  if (from.transport != MOECL_TRANSPORT_PROBED) options.transport = static_cast<TransportKind>(from.transport - 1);
  return options;
}

moecl_stream held(const moecl_stream& stream) {
  return {stream.context, Stream::borrow(*stream.context, stream.stream.view().queue)};
}

moecl_rank_group* handle_of(std::vector<moecl_stream> streams, RankGroup group) {
  return new moecl_rank_group{std::make_shared<GroupOfStreams>(GroupOfStreams{std::move(streams), std::move(group)})};
}

/// References to the streams of this process's ranks.
std::vector<moecl_stream> held(moecl_stream* const* streams, std::int32_t count) {
  require(count >= 0 && count <= most_ranks, "streams: {} of them", count);
  std::vector<moecl_stream> all;
  for (std::int32_t i = 0; i < count; ++i) all.push_back(held(required((&required(streams, "streams"))[i], "stream")));
  return all;
}

/// Makes a group of the ranks in this process by `make`. The handle keeps references to their streams.
template <class Make>
moecl_status group_of_streams(moecl_stream* const* streams, std::int32_t count, moecl_rank_group** out_group,
                              Make make) {
  return guarded([&] {
    moecl_rank_group*& out = required(out_group, "out_group");
    std::vector<moecl_stream> kept = held(streams, count);
    std::vector<StreamView> views;
    for (const moecl_stream& stream : kept) views.push_back(stream.stream);
    RankGroup group = make(views);
    out = handle_of(std::move(kept), std::move(group));
  });
}

template <class Regroup>
moecl_status regrouped(moecl_rank_group* group, moecl_rank_group** out_group, Regroup regroup) {
  return guarded([&] {
    moecl_rank_group*& out = required(out_group, "out_group");
    GroupOfStreams& of = *required(group, "group").ranks;
    RankGroup next = regroup(of.group);
    std::vector<moecl_stream> streams;
    for (const moecl_stream& stream : of.streams) streams.push_back(held(stream));
    out = handle_of(std::move(streams), std::move(next));
  });
}

void write_ranks(const std::vector<std::int32_t>& ranks, std::int32_t* out_count, std::int32_t* out_ranks) {
  required(out_count, "the number of ranks") = static_cast<std::int32_t>(ranks.size());
  if (out_ranks != nullptr) std::copy(ranks.begin(), ranks.end(), out_ranks);
}

template <class T>
std::vector<T> one_each(const Communicator& ranks, const T* array, const char* what) {
  return {&required(array, what), array + ranks.size()};
}

BufferView bytes_at(const Context& context, moecl_device_array array, std::uint64_t bytes, const char* what) {
  if (bytes == 0 && array.memory == nullptr) return {};
  const BufferView memory = memory_of(context, array, 1, what);
  require(bytes <= memory.size_bytes, "{}: {} bytes of a cl_mem with {} from {} on", what, bytes, memory.size_bytes,
          array.offset_bytes);
  return memory.slice(0, bytes);
}

/// The bytes of a rank's memory that its blocks need.
std::uint64_t end_of(const Communicator::Blocks& blocks, const char* what) {
  std::uint64_t end = 0;
  for (std::size_t r = 0; r < blocks.bytes.size(); ++r) {
    std::uint64_t of_block = 0;
    require(!__builtin_add_overflow(blocks.offsets[r], blocks.bytes[r], &of_block), "{}: block {} overflows", what, r);
    end = std::max(end, of_block);
  }
  return end;
}

void check_matrix(std::int64_t rows, std::int64_t width) {
  require(rows >= 0 && rows <= most_elements, "rows: {} is not in [0, {}]", rows, most_elements);
  require(width >= 1 && width <= most_elements, "width: {} is not in [1, {}]", width, most_elements);
}

}  // namespace
}  // namespace moecl::c_api

using namespace moecl;
using namespace moecl::c_api;

moecl_status moecl_rank_group_create(moecl_stream* const* streams, int32_t count,
                                     const moecl_rank_group_options* options, moecl_rank_group** out_group) {
  return group_of_streams(streams, count, out_group,
                          [&](const std::vector<StreamView>& on) { return RankGroup(on, group_options(options)); });
}

moecl_status moecl_rank_group_join(const char* name, int32_t rank, int32_t size, moecl_stream* stream,
                                   const moecl_rank_group_options* options, moecl_rank_group** out_group) {
  return moecl_rank_group_join_ranks(name, &rank, &stream, 1, size, options, out_group);
}

moecl_status moecl_rank_group_join_ranks(const char* name, const int32_t* ranks, moecl_stream* const* streams,
                                         int32_t count, int32_t size, const moecl_rank_group_options* options,
                                         moecl_rank_group** out_group) {
  return group_of_streams(streams, count, out_group, [&](const std::vector<StreamView>& on) {
    std::vector<RankGroup::Joining> joining;
    for (std::size_t i = 0; i < on.size(); ++i) joining.push_back({(&required(ranks, "ranks"))[i], on[i]});
    return RankGroup::join(&required(name, "name"), joining, size, group_options(options));
  });
}

moecl_status moecl_rank_group_from_mpi(const void* mpi_comm, moecl_stream* stream,
                                       const moecl_rank_group_options* options, moecl_rank_group** out_group) {
  return moecl_rank_group_from_mpi_ranks(mpi_comm, &stream, 1, options, out_group);
}

moecl_status moecl_rank_group_from_mpi_ranks(const void* mpi_comm, moecl_stream* const* streams, int32_t count,
                                             const moecl_rank_group_options* options, moecl_rank_group** out_group) {
  return group_of_streams(streams, count, out_group, [&](const std::vector<StreamView>& on) {
    return RankGroup::from_mpi(mpi_comm, on, group_options(options));
  });
}

moecl_status moecl_rank_group_shrink(moecl_rank_group* group, moecl_rank_group** out_group) {
  return regrouped(group, out_group, [](RankGroup& of) { return of.shrink(); });
}

moecl_status moecl_rank_group_rejoin(moecl_rank_group* group, moecl_rank_group** out_group) {
  return regrouped(group, out_group, [](RankGroup& of) { return of.rejoin(); });
}

moecl_status moecl_rank_group_members(const moecl_rank_group* group, int32_t* out_size, int32_t* out_ranks) {
  return guarded([&] { write_ranks(required(group, "group").ranks->group.joined_ranks(), out_size, out_ranks); });
}

moecl_status moecl_rank_group_local(const moecl_rank_group* group, int32_t* out_count, int32_t* out_ranks) {
  return guarded([&] { write_ranks(required(group, "group").ranks->group.local_ranks(), out_count, out_ranks); });
}

moecl_status moecl_rank_group_destroy(moecl_rank_group* group) {
  return guarded([&] { delete group; });
}

moecl_status moecl_rank_group_transport(const moecl_rank_group* group, int32_t from, int32_t to,
                                        moecl_transport_info* out_info) {
  return guarded([&] {
    const TransportChoice& choice = required(group, "group").ranks->group.transport(from, to);
    moecl_transport_info info{};
    info.transport = static_cast<std::int32_t>(choice.kind) + 1;
    copy_text(choice.reason, info.reason);
    write_struct(info, out_info, "out_info");
  });
}

moecl_status moecl_rank_group_abort(moecl_rank_group* group, const char* cause) {
  return guarded([&] { required(group, "group").ranks->group.abort(&required(cause, "cause")); });
}

moecl_status moecl_rank_group_failure(const moecl_rank_group* group, char* out_text, uint64_t text_bytes) {
  return guarded([&] {
    const std::string failure = required(group, "group").ranks->group.failure();
    require(text_bytes >= 1, "text_bytes: 0 leave no room for the NUL");
    copy_text(failure, &required(out_text, "out_text"), text_bytes);
  });
}

moecl_status moecl_rank_group_communicator(moecl_rank_group* group, int32_t rank,
                                           moecl_communicator** out_communicator) {
  return guarded([&] {
    moecl_communicator*& out = required(out_communicator, "out_communicator");
    const auto& ranks = required(group, "group").ranks;
    out = new moecl_communicator{ranks, ranks->group.communicator(rank)};
  });
}

moecl_status moecl_communicator_part(const moecl_communicator* communicator, const int32_t* members, int32_t count,
                                     moecl_communicator** out_communicator) {
  return guarded([&] {
    moecl_communicator*& out = required(out_communicator, "out_communicator");
    const moecl_communicator& of = required(communicator, "communicator");
    require(count >= 1 && count <= of.communicator.size(), "part: {} members of {} ranks", count,
            of.communicator.size());
    out = new moecl_communicator{of.ranks, of.communicator.part({&required(members, "members"), members + count})};
  });
}

moecl_status moecl_communicator_destroy(moecl_communicator* communicator) {
  return guarded([&] { delete communicator; });
}

moecl_status moecl_communicator_describe(const moecl_communicator* communicator, moecl_communicator_info* out_info) {
  return guarded([&] {
    const Communicator& of = required(communicator, "communicator").communicator;
    moecl_communicator_info info{};
    info.rank = of.rank();
    info.size = of.size();
    info.bytes_received = of.bytes_received();
    info.meetings = of.meetings();
    write_struct(info, out_info, "out_info");
  });
}

moecl_status moecl_communicator_wait(const moecl_communicator* communicator) {
  return guarded([&] {
    const Communicator& of = required(communicator, "communicator").communicator;
    of.wait(of.rank_stream().record());
  });
}

moecl_status moecl_barrier(moecl_communicator* communicator) {
  return collective(communicator, [](Communicator& ranks, const Context&) { ranks.barrier(); });
}

moecl_status moecl_all_gather(moecl_communicator* communicator, moecl_device_array send, moecl_device_array recv,
                              const uint64_t* bytes) {
  return collective(communicator, [&](Communicator& ranks, const Context& context) {
    const std::vector<std::uint64_t> sizes = one_each(ranks, bytes, "bytes");
    std::uint64_t total = 0;
    for (const std::uint64_t size : sizes)
      require(!__builtin_add_overflow(total, size, &total), "bytes: their sum overflows");
    ranks.all_gather_v(bytes_at(context, send, sizes[static_cast<std::size_t>(ranks.rank())], "send"),
                       bytes_at(context, recv, total, "recv"), sizes);
  });
}

moecl_status moecl_broadcast(moecl_communicator* communicator, moecl_device_array data, uint64_t bytes, int32_t root) {
  return collective(communicator, [&](Communicator& ranks, const Context& context) {
    ranks.broadcast(bytes_at(context, data, bytes, "data"), root);
  });
}

moecl_status moecl_all_to_all_v(moecl_communicator* communicator, moecl_device_array send, const uint64_t* send_offsets,
                                const uint64_t* send_bytes, moecl_device_array recv, const uint64_t* recv_offsets,
                                const uint64_t* recv_bytes) {
  return collective(communicator, [&](Communicator& ranks, const Context& context) {
    const Communicator::Blocks sends{one_each(ranks, send_offsets, "send_offsets"),
                                     one_each(ranks, send_bytes, "send_bytes")},
        receives{one_each(ranks, recv_offsets, "recv_offsets"), one_each(ranks, recv_bytes, "recv_bytes")};
    ranks.all_to_all_v(bytes_at(context, send, end_of(sends, "send"), "send"), sends,
                       bytes_at(context, recv, end_of(receives, "recv"), "recv"), receives);
  });
}

moecl_status moecl_reduce_scatter(moecl_communicator* communicator, moecl_device_array data, moecl_device_array out,
                                  int32_t dtype, int64_t width, const int64_t* rows) {
  return collective(communicator, [&](Communicator& ranks, const Context& context) {
    const std::vector<std::int64_t> of_rank = one_each(ranks, rows, "rows");
    std::int64_t total = 0;
    for (const std::int64_t count : of_rank) {
      check_matrix(count, width);
      total += count;
    }
    const DType type = dtype_of(dtype, "dtype");
    ranks.reduce_scatter(tensor_of(context, data, "data", type, total, width),
                         tensor_of(context, out, "out", type, of_rank[static_cast<std::size_t>(ranks.rank())], width),
                         of_rank);
  });
}

moecl_status moecl_all_reduce(moecl_communicator* communicator, moecl_device_array data, int32_t dtype, int64_t rows,
                              int64_t width) {
  return collective(communicator, [&](Communicator& ranks, const Context& context) {
    check_matrix(rows, width);
    ranks.all_reduce(tensor_of(context, data, "data", dtype_of(dtype, "dtype"), rows, width));
  });
}

moecl_status moecl_window_create(moecl_communicator* communicator, uint64_t bytes, moecl_window** out_window) {
  return collective(communicator, [&](Communicator& ranks, const Context&) {
    moecl_window*& out = required(out_window, "out_window");
    out = new moecl_window{communicator->ranks, ranks, Window(ranks, bytes)};
  });
}

moecl_status moecl_window_destroy(moecl_window* window) {
  return guarded([&] { delete window; });
}

moecl_status moecl_window_memory(const moecl_window* window, moecl_device_array* out_memory) {
  return guarded([&] {
    const BufferView memory = required(window, "window").window.memory();
    required(out_memory, "out_memory") = {memory.handle, memory.offset_bytes};
  });
}

moecl_status moecl_window_put(moecl_window* window, int32_t peer, uint64_t offset_bytes, moecl_device_array source,
                              uint64_t bytes) {
  return guarded([&] {
    moecl_window& of = required(window, "window");
    of.window.put(peer, offset_bytes, bytes_at(*of.communicator.stream().context, source, bytes, "source"));
  });
}

moecl_status moecl_window_fence(moecl_window* window) {
  return guarded([&] { required(window, "window").window.fence(); });
}
