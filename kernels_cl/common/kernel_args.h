// For the headers <op>_args.h, which C++ and OpenCL C both include. Members of a struct are long, int or float, the
// widest first, so that there are no gaps. An odd number of 4-byte members gets an `int pad`, since rusticl 22.3
// refuses a struct with padding at its end. KERNEL_ARGS checks the size in bytes on both sides.
#ifdef __cplusplus
#define KERNEL_ARGS(type, bytes) static_assert(sizeof(type) == (bytes))
static_assert(sizeof(long) == 8);
#else
#define KERNEL_ARGS(type, bytes) typedef char type##_has_##bytes##_bytes[sizeof(type) == (bytes) ? 1 : -1]
#endif
