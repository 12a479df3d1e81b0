/* The call of a CPU kernel with NumPy arrays, without Python code around it.
 *
 * `FastCall(...).call(arrays)` checks every array against the kernel's signature, allocates the outputs with a
 * Python callable, and calls `kcache_run` without the interpreter's lock. It returns the tuple of outputs, or None
 * for arguments and results that need `Kernel`'s general path: another class, dtype, rank or size, an array that is
 * not contiguous or not aligned, an error code of the kernel. The general path repeats the call and raises the error.
 *
 * Arrays are read through the buffer protocol, which is part of the limited API from Python 3.11 on; the build
 * defines Py_LIMITED_API there (hatch_build.py). NumPy is not needed to build this module. Objects have no state
 * outside of themselves, so the module can be imported in several interpreters that share one lock. It is not
 * built for interpreters without a lock.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define INTERFACE 1            /* Rises when the arguments of FastCall change; fast_call.py has the same number. */
#define MAX_BUFFERS 64         /* Inputs, constants and outputs of a call. */
#define MAX_WORKSPACE (16 << 10) /* Bytes; the workspace is on the stack. */
#define ALIGNMENT 64           /* Of the workspace; docs/reference/c-abi.md. */

typedef int32_t (*run_function)(void *const *buffers, const int64_t *dims, void *workspace, const void *host);

typedef struct {
    PyObject *dtype;
    Py_ssize_t alignment;
    int rank;
    Py_ssize_t *shape; /* In the block of memory of all inputs. */
} Input;

typedef struct {
    PyObject_HEAD
    run_function run;
    const int64_t *dims;
    const void *host;
    Py_ssize_t workspace;
    int strict;
    Py_ssize_t input_count, constant_count, output_count;
    Input *inputs; /* One block of memory: the inputs, then their shapes. */
    void *constants[MAX_BUFFERS];
    PyObject *array_class, *allocate, *keep, *dtype_name;
} FastCall;

static int
parse_inputs(FastCall *self, PyObject *inputs)
{
    Py_ssize_t count = PyTuple_Size(inputs), sizes = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *input = PyTuple_GetItem(inputs, i), *dtype, *shape;
        Py_ssize_t alignment;
        if (!PyTuple_Check(input)) {
            PyErr_SetString(PyExc_TypeError, "an input is a tuple of dtype, alignment and shape");
            return -1;
        }
        if (!PyArg_ParseTuple(input, "OnO!", &dtype, &alignment, &PyTuple_Type, &shape))
            return -1;
        if (alignment < 1) {
            PyErr_SetString(PyExc_ValueError, "an alignment is at least 1");
            return -1;
        }
        sizes += PyTuple_Size(shape);
    }
    self->inputs = PyMem_Calloc(1, count * sizeof(Input) + sizes * sizeof(Py_ssize_t));
    if (self->inputs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t *size = (Py_ssize_t *)(self->inputs + count);
    for (Py_ssize_t i = 0; i < count; i++) {
        Input *input = &self->inputs[i];
        PyObject *dtype, *shape;
        if (!PyArg_ParseTuple(PyTuple_GetItem(inputs, i), "OnO", &dtype, &input->alignment, &shape))
            return -1;
        input->rank = (int)PyTuple_Size(shape);
        input->shape = size;
        for (int axis = 0; axis < input->rank; axis++) {
            *size = PyLong_AsSsize_t(PyTuple_GetItem(shape, axis));
            if (*size++ == -1 && PyErr_Occurred())
                return -1;
        }
        Py_INCREF(dtype);
        input->dtype = dtype;
        self->input_count = i + 1;
    }
    return 0;
}

static int
parse_constants(FastCall *self, PyObject *constants)
{
    for (Py_ssize_t i = 0; i < self->constant_count; i++) {
        self->constants[i] = PyLong_AsVoidPtr(PyTuple_GetItem(constants, i));
        if (self->constants[i] == NULL && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static int
parse(FastCall *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"run",         "dims",   "host",      "workspace", "strict",   "array_class",
                            "inputs",      "constants", "outputs", "allocate", "keep",     NULL};
    PyObject *run, *dims, *host, *array_class, *inputs, *constants, *allocate, *keep;
    Py_ssize_t outputs;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOnpO!O!O!nOO:FastCall", names, &run, &dims, &host,
                                     &self->workspace, &self->strict, &PyType_Type, &array_class, &PyTuple_Type,
                                     &inputs, &PyTuple_Type, &constants, &outputs, &allocate, &keep))
        return -1;
    self->run = (run_function)(uintptr_t)PyLong_AsVoidPtr(run);
    self->dims = PyErr_Occurred() ? NULL : PyLong_AsVoidPtr(dims);
    self->host = PyErr_Occurred() ? NULL : PyLong_AsVoidPtr(host);
    if (PyErr_Occurred())
        return -1;
    self->constant_count = PyTuple_Size(constants);
    self->output_count = outputs;
    if (self->run == NULL || outputs < 0 || self->workspace < 0 || self->workspace > MAX_WORKSPACE ||
        outputs > MAX_BUFFERS || PyTuple_Size(inputs) + self->constant_count + outputs > MAX_BUFFERS) {
        PyErr_SetString(PyExc_ValueError, "no kernel, or more buffers or workspace than a fast call has");
        return -1;
    }
    if (parse_inputs(self, inputs) < 0 || parse_constants(self, constants) < 0)
        return -1;
    self->dtype_name = PyUnicode_InternFromString("dtype");
    if (self->dtype_name == NULL)
        return -1;
    Py_INCREF(array_class);
    Py_INCREF(allocate);
    Py_INCREF(keep);
    self->array_class = array_class;
    self->allocate = allocate;
    self->keep = keep;
    return 0;
}

static PyObject *
fastcall_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc allocate = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
    FastCall *self = (FastCall *)allocate(type, 0);
    if (self != NULL && parse(self, args, kwargs) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
fastcall_traverse(FastCall *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; i < self->input_count; i++)
        Py_VISIT(self->inputs[i].dtype);
    Py_VISIT(self->array_class);
    Py_VISIT(self->allocate);
    Py_VISIT(self->keep);
    Py_VISIT((PyObject *)Py_TYPE((PyObject *)self));
    return 0;
}

static void
fastcall_dealloc(FastCall *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    for (Py_ssize_t i = 0; i < self->input_count; i++)
        Py_DECREF(self->inputs[i].dtype);
    PyMem_Free(self->inputs);
    Py_XDECREF(self->array_class);
    Py_XDECREF(self->allocate);
    Py_XDECREF(self->keep);
    Py_XDECREF(self->dtype_name);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Whether this thread replaces subnormal numbers by zero, which kernels of numerics "strict" must not. */
static int
flushes_subnormals(void)
{
    volatile double subnormal = 4.9406564584124654e-324, one = 1.0;
    return subnormal * one == 0.0;
}

/* Fill `view` if `array` is what `input` describes. Returns whether it is; sets no exception. */
static int
acquire(const FastCall *self, const Input *input, PyObject *array, Py_buffer *view)
{
    if ((PyObject *)Py_TYPE(array) != self->array_class)
        return 0;
    PyObject *dtype = PyObject_GetAttr(array, self->dtype_name);
    Py_XDECREF(dtype); /* The array still refers to it. */
    if (dtype != input->dtype || PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (view->ndim == input->rank && (uintptr_t)view->buf % input->alignment == 0 &&
        (view->ndim == 0 || memcmp(view->shape, input->shape, input->rank * sizeof(Py_ssize_t)) == 0))
        return 1;
    PyBuffer_Release(view);
    return 0;
}

static int32_t
run_with_workspace(const FastCall *self, void *const *buffers)
{
    _Alignas(ALIGNMENT) char workspace[MAX_WORKSPACE];
    return self->run(buffers, self->dims, workspace, self->host);
}

/* New outputs: a tuple, and their addresses in `addresses`. A borrowed reference out of `*allocated`. */
static PyObject *
allocate_outputs(const FastCall *self, void **addresses, PyObject **allocated)
{
    char *bytes;
    Py_ssize_t size;
    *allocated = PyObject_CallObject(self->allocate, NULL);
    if (*allocated == NULL)
        return NULL;
    if (!PyTuple_Check(*allocated) || PyTuple_Size(*allocated) != 2) {
        PyErr_SetString(PyExc_TypeError, "allocate() returns the outputs and the bytes of their addresses");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(PyTuple_GetItem(*allocated, 1), &bytes, &size) < 0)
        return NULL;
    if (size != self->output_count * (Py_ssize_t)sizeof(void *)) {
        PyErr_SetString(PyExc_TypeError, "allocate() returned a wrong number of addresses");
        return NULL;
    }
    memcpy(addresses, bytes, size);
    return PyTuple_GetItem(*allocated, 0);
}

/* The outputs of the kernel for these buffers of inputs; None if it returns a code. */
static PyObject *
run(const FastCall *self, void **buffers)
{
    void **constants = buffers + self->input_count;
    PyObject *allocated, *outputs = allocate_outputs(self, constants + self->constant_count, &allocated);
    if (outputs != NULL) {
        int32_t code;
        memcpy(constants, self->constants, self->constant_count * sizeof(void *));
        Py_BEGIN_ALLOW_THREADS
        code = self->workspace ? run_with_workspace(self, buffers)
                               : self->run(buffers, self->dims, NULL, self->host);
        Py_END_ALLOW_THREADS
        outputs = code ? Py_None : outputs;
        Py_INCREF(outputs);
    }
    Py_XDECREF(allocated);
    return outputs;
}

static PyObject *
fastcall_call(FastCall *self, PyObject *arrays)
{
    void *buffers[MAX_BUFFERS];
    Py_buffer views[MAX_BUFFERS];
    Py_ssize_t held = 0;
    if (!PyTuple_Check(arrays) || PyTuple_Size(arrays) != self->input_count ||
        (self->strict && flushes_subnormals()))
        Py_RETURN_NONE;
    while (held < self->input_count &&
           acquire(self, &self->inputs[held], PyTuple_GetItem(arrays, held), &views[held])) {
        buffers[held] = views[held].buf;
        held++;
    }
    PyObject *result = Py_None;
    if (held == self->input_count)
        result = run(self, buffers);
    else
        Py_INCREF(result);
    while (held > 0)
        PyBuffer_Release(&views[--held]);
    return result;
}

static PyMethodDef fastcall_methods[] = {
    {"call", (PyCFunction)(void (*)(void))fastcall_call, METH_O,
     "call(arrays)\n--\n\nThe outputs for a tuple of arrays, or None where the general path has to do it."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot fastcall_slots[] = {
    {Py_tp_doc, "Calls one kernel at one tuple of shapes. `keep` is kept alive: whatever the addresses point into."},
    {Py_tp_new, fastcall_new},
    {Py_tp_traverse, fastcall_traverse},
    {Py_tp_dealloc, fastcall_dealloc},
    {Py_tp_methods, fastcall_methods},
    {0, NULL},
};

static PyType_Spec fastcall_spec = {
    .name = "kcache_grpc.runtime._fastcall.FastCall",
    .basicsize = sizeof(FastCall),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = fastcall_slots,
};

static int
module_exec(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &fastcall_spec, NULL);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed < 0 || PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0 ||
                   PyModule_AddIntConstant(module, "MAX_BUFFERS", MAX_BUFFERS) < 0 ||
                   PyModule_AddIntConstant(module, "MAX_WORKSPACE", MAX_WORKSPACE) < 0
               ? -1
               : 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kcache_grpc.runtime._fastcall",
    .m_doc = "Calls of CPU kernels with NumPy arrays.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__fastcall(void)
{
    return PyModuleDef_Init(&module);
}
