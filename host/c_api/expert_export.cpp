// The C interface that copies single experts out of a layer and into one.
#include <moecl/layer_builder.h>

#include "host/c_api/parallel.hpp"

namespace moecl::c_api {
namespace {

StreamView stream_of(const moecl_layer& layer, const moecl_stream* stream) {
  const moecl_stream& on = required(stream, "stream");
  require(on.context->handle() == layer.context->handle(), "the stream and the layer are of different cl_contexts");
  return on.stream;
}

template <class Plain>
void hand_over(const moecl_plain_expert* to, Plain plain) {
  const auto wanted = read_struct(to, "to");
  const PlainExpert expert = plain();
  struct Part {
    float* to;
    const std::vector<float>& from;
    const char* what;
  };
  const Part parts[] = {{wanted.gate, expert.gate, "gate"},          {wanted.up, expert.up, "up"},
                        {wanted.down, expert.down, "down"},          {wanted.gate_bias, expert.gate_bias, "gate bias"},
                        {wanted.up_bias, expert.up_bias, "up bias"}, {wanted.down_bias, expert.down_bias, "down bias"}};
  for (const Part& part : parts)
    require(part.to == nullptr || !part.from.empty(), "to: the expert has no {}", part.what);
  for (const Part& part : parts)
    if (part.to != nullptr) std::copy(part.from.begin(), part.from.end(), part.to);
}

template <class Packed>
void hand_over(void* to, std::uint64_t bytes, std::uint64_t expected, Packed packed) {
  require(to != nullptr, "out_packed: the pointer is null");
  require(bytes == expected, "bytes: expected {}, got {}", expected, bytes);
  const std::vector<std::byte> expert = packed();
  std::memcpy(to, expert.data(), expert.size());
}

std::vector<std::byte> bytes_of(const void* packed, std::uint64_t bytes) {
  require(packed != nullptr, "packed: the pointer is null");
  const auto* first = static_cast<const std::byte*>(packed);
  return {first, first + bytes};
}

}  // namespace
}  // namespace moecl::c_api

using namespace moecl;
using namespace moecl::c_api;

moecl_status moecl_layer_export_expert(const moecl_layer* layer, moecl_stream* stream, int32_t expert,
                                       const moecl_plain_expert* to) {
  return guarded([&] {
    const moecl_layer& of = required(layer, "layer");
    const StreamView on = stream_of(of, stream);
    hand_over(to, [&] { return of.layer.plain_expert(on, expert); });
  });
}

moecl_status moecl_layer_packed_expert_bytes(const moecl_layer* layer, uint64_t* out_bytes) {
  return guarded([&] { required(out_bytes, "out_bytes") = required(layer, "layer").layer.packed_expert_bytes(); });
}

moecl_status moecl_layer_export_packed_expert(const moecl_layer* layer, moecl_stream* stream, int32_t expert,
                                              void* out_packed, uint64_t bytes) {
  return guarded([&] {
    const moecl_layer& of = required(layer, "layer");
    const StreamView on = stream_of(of, stream);
    hand_over(out_packed, bytes, of.layer.packed_expert_bytes(), [&] { return of.layer.packed_expert(on, expert); });
  });
}

moecl_status moecl_layer_replace_packed_expert(moecl_layer* layer, moecl_stream* stream, int32_t expert,
                                               const void* packed, uint64_t bytes) {
  return guarded([&] {
    moecl_layer& of = required(layer, "layer");
    of.layer.replace_packed_expert(stream_of(of, stream), expert, bytes_of(packed, bytes));
  });
}

moecl_status moecl_parallel_layer_export_expert(const moecl_parallel_layer* layer, int32_t place,
                                                const moecl_plain_expert* to) {
  return guarded([&] {
    const moecl_parallel_layer& of = required(layer, "layer");
    hand_over(to, [&] { return of.layer.plain_expert(place); });
  });
}

moecl_status moecl_parallel_layer_packed_expert_bytes(const moecl_parallel_layer* layer, uint64_t* out_bytes) {
  return guarded([&] { required(out_bytes, "out_bytes") = required(layer, "layer").layer.packed_expert_bytes(); });
}

moecl_status moecl_parallel_layer_export_packed_expert(const moecl_parallel_layer* layer, int32_t place,
                                                       void* out_packed, uint64_t bytes) {
  return guarded([&] {
    const moecl_parallel_layer& of = required(layer, "layer");
    hand_over(out_packed, bytes, of.layer.packed_expert_bytes(), [&] { return of.layer.packed_expert(place); });
  });
}

moecl_status moecl_parallel_layer_replace_packed_expert(moecl_parallel_layer* layer, int32_t place, const void* packed,
                                                        uint64_t bytes) {
  return guarded([&] { required(layer, "layer").layer.replace_packed_expert(place, bytes_of(packed, bytes)); });
}
