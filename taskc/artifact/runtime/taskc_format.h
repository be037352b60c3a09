/* Generated from taskc/artifact/records.py by `python -m taskc.artifact.c_header`; do not edit. */
#ifndef TASKC_FORMAT_H
#define TASKC_FORMAT_H
#include <stddef.h>
#include <stdint.h>

#define FMT_MAGIC "TASKCMDL"
#define FMT_VERSION 2u
#define FMT_MAX_RANK 16u
#define FMT_MAX_STACK 64u
#define FMT_MAX_CODE 4096u

enum { FMT_DTYPE_CODE_F16 = 1, FMT_DTYPE_CODE_BF16 = 2, FMT_DTYPE_CODE_F32 = 3, FMT_DTYPE_CODE_F64 = 4, FMT_DTYPE_CODE_I8 = 5, FMT_DTYPE_CODE_I16 = 6, FMT_DTYPE_CODE_I32 = 7, FMT_DTYPE_CODE_I64 = 8, FMT_DTYPE_CODE_U8 = 9, FMT_DTYPE_CODE_U16 = 10, FMT_DTYPE_CODE_U32 = 11, FMT_DTYPE_CODE_U64 = 12, FMT_DTYPE_CODE_B8 = 13 };
enum { FMT_OP_CONST = 0, FMT_OP_SYMBOL = 1, FMT_OP_ADD = 2, FMT_OP_MUL = 3, FMT_OP_FLOOR_DIV = 4, FMT_OP_FLOOR_MOD = 5, FMT_OP_MIN = 6, FMT_OP_MAX = 7 };
enum { FMT_IMAGE_KIND_CUBIN = 0, FMT_IMAGE_KIND_PTX = 1, FMT_IMAGE_KIND_HOST = 2 };
enum { FMT_MEMORY_KIND_INPUT = 0, FMT_MEMORY_KIND_OUTPUT = 1, FMT_MEMORY_KIND_ARENA = 2, FMT_MEMORY_KIND_WEIGHT = 3 };
enum { FMT_STEP_KIND_LAUNCH = 0, FMT_STEP_KIND_COPY = 1, FMT_STEP_KIND_FILL = 2 };
enum { FMT_ARG_KIND_TENSOR = 0, FMT_ARG_KIND_INT = 1, FMT_ARG_KIND_SCRATCH = 2, FMT_ARG_KIND_COUNTER = 3, FMT_ARG_KIND_TENSOR_MAP = 4 };
enum { FMT_KERNEL_FLAG_PDL = 1, FMT_KERNEL_FLAG_COOPERATIVE = 2 };

typedef struct fmt_text {
  uint32_t offset;
  uint32_t bytes;
} fmt_text;
_Static_assert(sizeof(fmt_text) == 8, "fmt_text");
_Static_assert(offsetof(fmt_text, offset) == 0, "fmt_text.offset");
_Static_assert(offsetof(fmt_text, bytes) == 4, "fmt_text.bytes");

typedef struct fmt_index_ref {
  int64_t value;
  uint32_t code;
  uint32_t length;
} fmt_index_ref;
_Static_assert(sizeof(fmt_index_ref) == 16, "fmt_index_ref");
_Static_assert(offsetof(fmt_index_ref, value) == 0, "fmt_index_ref.value");
_Static_assert(offsetof(fmt_index_ref, code) == 8, "fmt_index_ref.code");
_Static_assert(offsetof(fmt_index_ref, length) == 12, "fmt_index_ref.length");

typedef struct fmt_span {
  uint32_t first;
  uint32_t count;
} fmt_span;
_Static_assert(sizeof(fmt_span) == 8, "fmt_span");
_Static_assert(offsetof(fmt_span, first) == 0, "fmt_span.first");
_Static_assert(offsetof(fmt_span, count) == 4, "fmt_span.count");

typedef struct fmt_table {
  uint64_t offset;
  uint32_t count;
  uint32_t record_bytes;
} fmt_table;
_Static_assert(sizeof(fmt_table) == 16, "fmt_table");
_Static_assert(offsetof(fmt_table, offset) == 0, "fmt_table.offset");
_Static_assert(offsetof(fmt_table, count) == 8, "fmt_table.count");
_Static_assert(offsetof(fmt_table, record_bytes) == 12, "fmt_table.record_bytes");

typedef struct fmt_code {
  uint32_t op;
  uint32_t symbol;
  int64_t value;
} fmt_code;
_Static_assert(sizeof(fmt_code) == 16, "fmt_code");
_Static_assert(offsetof(fmt_code, op) == 0, "fmt_code.op");
_Static_assert(offsetof(fmt_code, symbol) == 4, "fmt_code.symbol");
_Static_assert(offsetof(fmt_code, value) == 8, "fmt_code.value");

typedef struct fmt_symbol {
  fmt_text name;
  uint32_t input;
  uint32_t axis;
  int64_t low;
  int64_t multiple;
  int64_t high;
} fmt_symbol;
_Static_assert(sizeof(fmt_symbol) == 40, "fmt_symbol");
_Static_assert(offsetof(fmt_symbol, name) == 0, "fmt_symbol.name");
_Static_assert(offsetof(fmt_symbol, input) == 8, "fmt_symbol.input");
_Static_assert(offsetof(fmt_symbol, axis) == 12, "fmt_symbol.axis");
_Static_assert(offsetof(fmt_symbol, low) == 16, "fmt_symbol.low");
_Static_assert(offsetof(fmt_symbol, multiple) == 24, "fmt_symbol.multiple");
_Static_assert(offsetof(fmt_symbol, high) == 32, "fmt_symbol.high");

typedef struct fmt_dim {
  fmt_text name;
  fmt_index_ref extent;
} fmt_dim;
_Static_assert(sizeof(fmt_dim) == 24, "fmt_dim");
_Static_assert(offsetof(fmt_dim, name) == 0, "fmt_dim.name");
_Static_assert(offsetof(fmt_dim, extent) == 8, "fmt_dim.extent");

typedef struct fmt_port {
  fmt_text name;
  uint32_t dtype;
  uint32_t rank;
  uint32_t first_dim;
  uint32_t reserved;
} fmt_port;
_Static_assert(sizeof(fmt_port) == 24, "fmt_port");
_Static_assert(offsetof(fmt_port, name) == 0, "fmt_port.name");
_Static_assert(offsetof(fmt_port, dtype) == 8, "fmt_port.dtype");
_Static_assert(offsetof(fmt_port, rank) == 12, "fmt_port.rank");
_Static_assert(offsetof(fmt_port, first_dim) == 16, "fmt_port.first_dim");
_Static_assert(offsetof(fmt_port, reserved) == 20, "fmt_port.reserved");

typedef struct fmt_target {
  fmt_text name;
  fmt_index_ref arena;
  fmt_span images;
  fmt_span kernels;
  fmt_span tensors;
  fmt_span steps;
} fmt_target;
_Static_assert(sizeof(fmt_target) == 56, "fmt_target");
_Static_assert(offsetof(fmt_target, name) == 0, "fmt_target.name");
_Static_assert(offsetof(fmt_target, arena) == 8, "fmt_target.arena");
_Static_assert(offsetof(fmt_target, images) == 24, "fmt_target.images");
_Static_assert(offsetof(fmt_target, kernels) == 32, "fmt_target.kernels");
_Static_assert(offsetof(fmt_target, tensors) == 40, "fmt_target.tensors");
_Static_assert(offsetof(fmt_target, steps) == 48, "fmt_target.steps");

typedef struct fmt_image {
  fmt_text arch;
  uint32_t kind;
  uint32_t reserved;
  uint64_t offset;
  uint64_t bytes;
} fmt_image;
_Static_assert(sizeof(fmt_image) == 32, "fmt_image");
_Static_assert(offsetof(fmt_image, arch) == 0, "fmt_image.arch");
_Static_assert(offsetof(fmt_image, kind) == 8, "fmt_image.kind");
_Static_assert(offsetof(fmt_image, reserved) == 12, "fmt_image.reserved");
_Static_assert(offsetof(fmt_image, offset) == 16, "fmt_image.offset");
_Static_assert(offsetof(fmt_image, bytes) == 24, "fmt_image.bytes");

typedef struct fmt_kernel {
  fmt_text symbol;
  fmt_text notes;
  uint32_t threads;
  uint32_t shared_bytes;
  uint32_t cluster[3];
  uint32_t flags;
  uint32_t registers;
  uint32_t spill_bytes;
} fmt_kernel;
_Static_assert(sizeof(fmt_kernel) == 48, "fmt_kernel");
_Static_assert(offsetof(fmt_kernel, symbol) == 0, "fmt_kernel.symbol");
_Static_assert(offsetof(fmt_kernel, notes) == 8, "fmt_kernel.notes");
_Static_assert(offsetof(fmt_kernel, threads) == 16, "fmt_kernel.threads");
_Static_assert(offsetof(fmt_kernel, shared_bytes) == 20, "fmt_kernel.shared_bytes");
_Static_assert(offsetof(fmt_kernel, cluster) == 24, "fmt_kernel.cluster");
_Static_assert(offsetof(fmt_kernel, flags) == 36, "fmt_kernel.flags");
_Static_assert(offsetof(fmt_kernel, registers) == 40, "fmt_kernel.registers");
_Static_assert(offsetof(fmt_kernel, spill_bytes) == 44, "fmt_kernel.spill_bytes");

typedef struct fmt_tensor {
  fmt_text name;
  uint32_t dtype;
  uint32_t rank;
  uint32_t first_dim;
  uint32_t memory;
  uint32_t number;
  uint32_t reserved;
  fmt_index_ref offset;
} fmt_tensor;
_Static_assert(sizeof(fmt_tensor) == 48, "fmt_tensor");
_Static_assert(offsetof(fmt_tensor, name) == 0, "fmt_tensor.name");
_Static_assert(offsetof(fmt_tensor, dtype) == 8, "fmt_tensor.dtype");
_Static_assert(offsetof(fmt_tensor, rank) == 12, "fmt_tensor.rank");
_Static_assert(offsetof(fmt_tensor, first_dim) == 16, "fmt_tensor.first_dim");
_Static_assert(offsetof(fmt_tensor, memory) == 20, "fmt_tensor.memory");
_Static_assert(offsetof(fmt_tensor, number) == 24, "fmt_tensor.number");
_Static_assert(offsetof(fmt_tensor, reserved) == 28, "fmt_tensor.reserved");
_Static_assert(offsetof(fmt_tensor, offset) == 32, "fmt_tensor.offset");

typedef struct fmt_step {
  fmt_text name;
  uint32_t kind;
  uint32_t kernel;
  uint32_t source;
  uint32_t target;
  uint32_t byte;
  uint32_t reserved;
  fmt_index_ref size;
  fmt_index_ref grid[3];
  fmt_span args;
  fmt_span after;
} fmt_step;
_Static_assert(sizeof(fmt_step) == 112, "fmt_step");
_Static_assert(offsetof(fmt_step, name) == 0, "fmt_step.name");
_Static_assert(offsetof(fmt_step, kind) == 8, "fmt_step.kind");
_Static_assert(offsetof(fmt_step, kernel) == 12, "fmt_step.kernel");
_Static_assert(offsetof(fmt_step, source) == 16, "fmt_step.source");
_Static_assert(offsetof(fmt_step, target) == 20, "fmt_step.target");
_Static_assert(offsetof(fmt_step, byte) == 24, "fmt_step.byte");
_Static_assert(offsetof(fmt_step, reserved) == 28, "fmt_step.reserved");
_Static_assert(offsetof(fmt_step, size) == 32, "fmt_step.size");
_Static_assert(offsetof(fmt_step, grid) == 48, "fmt_step.grid");
_Static_assert(offsetof(fmt_step, args) == 96, "fmt_step.args");
_Static_assert(offsetof(fmt_step, after) == 104, "fmt_step.after");

typedef struct fmt_arg {
  uint32_t kind;
  uint32_t bytes;
  uint32_t tensor;
  uint32_t map;
  fmt_index_ref value;
  fmt_index_ref size;
} fmt_arg;
_Static_assert(sizeof(fmt_arg) == 48, "fmt_arg");
_Static_assert(offsetof(fmt_arg, kind) == 0, "fmt_arg.kind");
_Static_assert(offsetof(fmt_arg, bytes) == 4, "fmt_arg.bytes");
_Static_assert(offsetof(fmt_arg, tensor) == 8, "fmt_arg.tensor");
_Static_assert(offsetof(fmt_arg, map) == 12, "fmt_arg.map");
_Static_assert(offsetof(fmt_arg, value) == 16, "fmt_arg.value");
_Static_assert(offsetof(fmt_arg, size) == 32, "fmt_arg.size");

typedef struct fmt_map {
  uint32_t rank;
  uint32_t swizzle_bytes;
  fmt_index_ref sizes[5];
  fmt_index_ref strides[5];
  uint32_t box[5];
  uint32_t reserved;
} fmt_map;
_Static_assert(sizeof(fmt_map) == 192, "fmt_map");
_Static_assert(offsetof(fmt_map, rank) == 0, "fmt_map.rank");
_Static_assert(offsetof(fmt_map, swizzle_bytes) == 4, "fmt_map.swizzle_bytes");
_Static_assert(offsetof(fmt_map, sizes) == 8, "fmt_map.sizes");
_Static_assert(offsetof(fmt_map, strides) == 88, "fmt_map.strides");
_Static_assert(offsetof(fmt_map, box) == 168, "fmt_map.box");
_Static_assert(offsetof(fmt_map, reserved) == 188, "fmt_map.reserved");

typedef struct fmt_edge {
  uint32_t step;
} fmt_edge;
_Static_assert(sizeof(fmt_edge) == 4, "fmt_edge");
_Static_assert(offsetof(fmt_edge, step) == 0, "fmt_edge.step");

typedef struct fmt_header {
  char magic[8];
  uint32_t version;
  uint32_t crc;
  uint64_t payload_bytes;
  uint64_t head_bytes;
  uint64_t weights_offset;
  uint64_t weights_bytes;
  fmt_text name;
  fmt_text metadata;
  fmt_table strings;
  fmt_table code;
  fmt_table symbols;
  fmt_table dims;
  fmt_table inputs;
  fmt_table outputs;
  fmt_table targets;
  fmt_table images;
  fmt_table kernels;
  fmt_table tensors;
  fmt_table steps;
  fmt_table args;
  fmt_table maps;
  fmt_table edges;
} fmt_header;
_Static_assert(sizeof(fmt_header) == 288, "fmt_header");
_Static_assert(offsetof(fmt_header, magic) == 0, "fmt_header.magic");
_Static_assert(offsetof(fmt_header, version) == 8, "fmt_header.version");
_Static_assert(offsetof(fmt_header, crc) == 12, "fmt_header.crc");
_Static_assert(offsetof(fmt_header, payload_bytes) == 16, "fmt_header.payload_bytes");
_Static_assert(offsetof(fmt_header, head_bytes) == 24, "fmt_header.head_bytes");
_Static_assert(offsetof(fmt_header, weights_offset) == 32, "fmt_header.weights_offset");
_Static_assert(offsetof(fmt_header, weights_bytes) == 40, "fmt_header.weights_bytes");
_Static_assert(offsetof(fmt_header, name) == 48, "fmt_header.name");
_Static_assert(offsetof(fmt_header, metadata) == 56, "fmt_header.metadata");
_Static_assert(offsetof(fmt_header, strings) == 64, "fmt_header.strings");
_Static_assert(offsetof(fmt_header, code) == 80, "fmt_header.code");
_Static_assert(offsetof(fmt_header, symbols) == 96, "fmt_header.symbols");
_Static_assert(offsetof(fmt_header, dims) == 112, "fmt_header.dims");
_Static_assert(offsetof(fmt_header, inputs) == 128, "fmt_header.inputs");
_Static_assert(offsetof(fmt_header, outputs) == 144, "fmt_header.outputs");
_Static_assert(offsetof(fmt_header, targets) == 160, "fmt_header.targets");
_Static_assert(offsetof(fmt_header, images) == 176, "fmt_header.images");
_Static_assert(offsetof(fmt_header, kernels) == 192, "fmt_header.kernels");
_Static_assert(offsetof(fmt_header, tensors) == 208, "fmt_header.tensors");
_Static_assert(offsetof(fmt_header, steps) == 224, "fmt_header.steps");
_Static_assert(offsetof(fmt_header, args) == 240, "fmt_header.args");
_Static_assert(offsetof(fmt_header, maps) == 256, "fmt_header.maps");
_Static_assert(offsetof(fmt_header, edges) == 272, "fmt_header.edges");

#endif
