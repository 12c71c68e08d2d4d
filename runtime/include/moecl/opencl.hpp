#pragma once
// The only public header that includes OpenCL's own. With it, moecl's handles are OpenCL's:
// `Context::borrow(cl_context)`, `Stream::borrow(context, cl_command_queue)` and `Buffer::borrow(cl_mem)` retain the
// caller's object. `.handle()` returns a cl_* handle without a reference, `Event::release()` one with a reference.
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <moecl/buffer.hpp>
#include <moecl/context.hpp>
#include <moecl/event.hpp>
#include <moecl/stream.hpp>

#include <CL/cl.h>
