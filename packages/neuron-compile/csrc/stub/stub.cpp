// A handler for the compile worker, which has no torch: XLA refuses a program whose custom calls have no handler. It takes
// any operands, results and attributes, and is never run.
#include <Python.h>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

ffi::Error never_run(ffi::RemainingArgs, ffi::RemainingRets, ffi::Dictionary) {
  return ffi::Error(ffi::ErrorCode::kUnimplemented, "The compile worker does not run programs.");
}

} // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(NeuronStub, never_run, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());

namespace {

PyObject* stub(PyObject*, PyObject*) {
  return PyCapsule_New(reinterpret_cast<void*>(&NeuronStub), nullptr, nullptr);
}

PyMethodDef methods[] = {
    {"stub", stub, METH_NOARGS, "Return the capsule of a handler that takes anything and is never run."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_stub", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit__stub() {
  return PyModule_Create(&definition);
}
