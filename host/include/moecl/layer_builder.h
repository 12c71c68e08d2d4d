#ifndef MOECL_LAYER_BUILDER_H
#define MOECL_LAYER_BUILDER_H
/// @file
/// Builds layers from tensors that arrive one by one, as an engine loads them, and reads single experts back out of a
/// layer.
///
/// An expert is uploaded to the device when its last tensor has arrived, so host memory holds only the tensors of
/// incomplete experts. Optional tensors of a scheme (a group index, "weight_shape") must arrive before the last tensor
/// that the scheme needs. All experts are stored in the format of the first complete one.
#include <moecl/moecl.h>
#include <moecl/parallel_layer.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A layer under construction. Threads: one at a time.
typedef struct moecl_layer_builder moecl_layer_builder;

/// The tensors that hold a quantized matrix [N, K], and how its codes are packed in them.
typedef enum moecl_stored_form {
  MOECL_FORM_ROWS = 0,     ///< "weight" or "weight_packed" [N, K]: one code per element, or several per byte along K
  MOECL_FORM_WORDS = 1,    ///< "weight_packed" [N, K / n]: n codes per int32 along K. Source: compressed-tensors
  MOECL_FORM_GPTQ = 2,     ///< "qweight" [K / n, N]: n codes per int32 along K; "qzeros" hold zero - 1
  MOECL_FORM_GPTQ_V2 = 3,  ///< the same; "qzeros" hold the zero itself. Source: GPTQModel
  MOECL_FORM_AWQ = 4,      ///< "qweight" [K, N / 8]: 8 codes per int32 along N, interleaved. Source: AutoAWQ
  MOECL_FORM_BLOCKS = 5    ///< "blocks" [N, K / 32, 16] and "scales". Source: gpt-oss
} moecl_stored_form;

/// The format in which the experts' matrices arrive, and those of the shared experts unless these are plain.
typedef struct moecl_stored_weights {
  uint64_t size_bytes;
  const char* scheme;           ///< NULL, or the name of a scheme ("fp8_w8a8_block"): format of the weights, and of the
                                ///< products' rows unless the layer's options say it
  moecl_operand_quant weights;  ///< without a scheme: how the weights are quantized; dtype 0: they are plain
  int32_t form;                 ///< moecl_stored_form
  int32_t transposed;           ///< not 0: matrices that are plain or MOECL_FORM_ROWS are stored as [H, I] (or [H, 2I])
                                ///< and [I, H]
} moecl_stored_weights;

/// A layer whose tensors are named by shard and expert.
///
/// @param desc     Gives the sizes. Of its arrays only whether `data` is NULL is read: not NULL announces that tensor.
///                 This holds for the router, biases, the selection bias and the shared experts' gate; the sizes decide
///                 all else. With num_fused_shared_experts, the tensors of the shared experts arrive as without it
/// @param stored   NULL: the weights are plain
/// @param options  dtype must be set. Lifetime: the stream lives until the builder is destroyed
moecl_status moecl_layer_builder_create(moecl_stream* stream, const moecl_layer_desc* desc,
                                        const moecl_stored_weights* stored, const moecl_layer_options* options,
                                        moecl_layer_builder** out_builder);
/// A layer whose tensors have the names that a Hugging Face checkpoint gives them.
/// @param config_json  Path of its config.json. @param layer  Decoder layer; -1: the first that has experts
/// @param options      dtype 0: config.json's
moecl_status moecl_layer_builder_open(moecl_stream* stream, const char* config_json, int32_t layer,
                                      const moecl_layer_options* options, moecl_layer_builder** out_builder);
/// The same two for one rank of a layer over many. The builder keeps the tensors of its own places, copies of experts
/// included, and takes its part of them. By all ranks.
moecl_status moecl_layer_builder_create_rank(moecl_communicator* communicator, const moecl_layer_desc* desc,
                                             const moecl_stored_weights* stored, const moecl_parallel_options* parallel,
                                             const moecl_layer_options* options, moecl_layer_builder** out_builder);
/// See moecl_layer_builder_create_rank and moecl_layer_builder_open.
moecl_status moecl_layer_builder_open_rank(moecl_communicator* communicator, const char* config_json, int32_t layer,
                                           const moecl_parallel_options* parallel, const moecl_layer_options* options,
                                           moecl_layer_builder** out_builder);
/// NULL is no error.
moecl_status moecl_layer_builder_destroy(moecl_layer_builder* builder);

/// A whole tensor, contiguous and row-major, in host memory or in a cl_mem.
typedef struct moecl_named_tensor {
  uint64_t size_bytes;
  /// With a shard, the name of the tensor within that shard: "weight", "weight_scale", "weight_zero_point", "qweight",
  /// "qzeros", "scales", "g_idx", "input_scale", "bias", ... Without a shard, the whole name in the checkpoint
  const char* name;
  /// NULL, or "w1" (gate), "w3" (up), "w2" (down), "gate_up"; "router" (its "weight", "bias",
  /// "e_score_correction_bias", "expert_table"); "shared.w1", "shared.w3", "shared.w2", "shared.gate"; "const_experts"
  /// (its "alpha_1", "alpha_2", "v"). A shard needs a builder made by _create or _create_rank, not opened
  const char* shard;
  int32_t expert;             ///< for w1, w3, w2 and gate_up; -1: all experts, with a leading dimension E
  int32_t dtype;              ///< moecl_dtype: MOECL_I32 for words, MOECL_U8 for packed codes and e8m0 scales
  int32_t rank;               ///< number of dimensions. Range: [0, 4]
  int32_t lent;               ///< not 0: `data` stays valid until the layer is finished; 0: only during the call
  int64_t shape[4];           ///< the first `rank` entries count
  const void* data;           ///< in host memory, or
  moecl_device_array memory;  ///< in a cl_mem of the context, read after what was enqueued on the stream before
} moecl_named_tensor;

/// Takes a tensor. Stops the host if an expert becomes complete, or if the tensor is in a cl_mem.
/// @param out_taken  NULL, or receives 0 if the tensor is not needed here: another rank's, or no tensor of the layer
/// Errors: invalid_data      dtype or shape is not that of the layer; another tensor of the same name may follow
///         invalid_argument  the expert is already complete, or its format differs from the first one's
moecl_status moecl_layer_builder_set(moecl_layer_builder* builder, const moecl_named_tensor* tensor,
                                     int32_t* out_taken);
/// The names of the tensors that are still missing, one per line, cut to fit text_bytes with its NUL.
/// @param out_count  Number of all missing tensors. @param out_text  May be NULL with text_bytes 0
moecl_status moecl_layer_builder_missing(const moecl_layer_builder* builder, int32_t* out_count, char* out_text,
                                         uint64_t text_bytes);
/// Returns the layer. The builder can then only be destroyed. Stops the host.
/// Errors: invalid_argument  tensors are missing: the message says how many, and some of their names
moecl_status moecl_layer_builder_finish(moecl_layer_builder* builder, moecl_layer** out_layer);
/// The same for a rank's layer. By all ranks.
moecl_status moecl_layer_builder_finish_rank(moecl_layer_builder* builder, moecl_parallel_layer** out_layer);

// ------------------------------------------------------------------------------------------------------ single experts

/// Destinations for one expert as plain numbers, row-major. Quantized weights are dequantized. NULL: not wanted.
typedef struct moecl_plain_expert {
  uint64_t size_bytes;
  float* gate;       ///< Shape: [I, L]
  float* up;         ///< Shape: [I, L]
  float* down;       ///< Shape: [L, I]
  float* gate_bias;  ///< Shape: [I]
  float* up_bias;    ///< Shape: [I]
  float* down_bias;  ///< Shape: [L]
} moecl_plain_expert;

/// Reads an expert as plain numbers, after what was enqueued on the stream before. Stops the host.
/// Errors: invalid_argument  no such expert, or the expert lacks a gate or bias that is asked for
moecl_status moecl_layer_export_expert(const moecl_layer* layer, moecl_stream* stream, int32_t expert,
                                       const moecl_plain_expert* to);
/// Size of an expert as the device stores it: 256 bytes that say in words how it is packed, then codes, scales, biases.
moecl_status moecl_layer_packed_expert_bytes(const moecl_layer* layer, uint64_t* out_bytes);
/// Reads an expert as the device stores it. @param bytes  moecl_layer_packed_expert_bytes. Stops the host
moecl_status moecl_layer_export_packed_expert(const moecl_layer* layer, moecl_stream* stream, int32_t expert,
                                              void* out_packed, uint64_t bytes);
/// Takes the bytes of moecl_layer_export_packed_expert, from any layer with the same packing. Stops the host.
/// Errors: invalid_argument  another packing, or no such expert
moecl_status moecl_layer_replace_packed_expert(moecl_layer* layer, moecl_stream* stream, int32_t expert,
                                               const void* packed, uint64_t bytes);
/// As moecl_layer_export_expert, for the expert at one place of this rank, or the rank's part of it. @param place
/// Range: [0, places)
moecl_status moecl_parallel_layer_export_expert(const moecl_parallel_layer* layer, int32_t place,
                                                const moecl_plain_expert* to);
/// See moecl_layer_packed_expert_bytes.
moecl_status moecl_parallel_layer_packed_expert_bytes(const moecl_parallel_layer* layer, uint64_t* out_bytes);
/// See moecl_layer_export_packed_expert.
moecl_status moecl_parallel_layer_export_packed_expert(const moecl_parallel_layer* layer, int32_t place,
                                                       void* out_packed, uint64_t bytes);
/// See moecl_layer_replace_packed_expert.
moecl_status moecl_parallel_layer_replace_packed_expert(moecl_parallel_layer* layer, int32_t place, const void* packed,
                                                        uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
