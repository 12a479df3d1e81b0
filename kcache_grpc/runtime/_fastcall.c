/* Calls of CPU kernels without Python code around them: with NumPy arrays, and with tensors of PyTorch.
 *
 * `FastCall(...).call(arrays)` checks every array against the kernel's signature, allocates the outputs with a
 * Python callable, and calls `kcache_run` without the interpreter's lock. It returns the tuple of outputs, or None
 * for arguments and results that need `Kernel`'s general path: another class, dtype, rank or size, an array that is
 * not contiguous or not aligned, an error code of the kernel. The general path repeats the call and raises the error.
 *
 * `TensorCall(...).call(tensors, workspace)` calls `kcache_run` with tensors whose attributes its caller has checked.
 * It reads their addresses with the C function behind `torch.Tensor.data_ptr`, so that this module is not linked
 * against PyTorch. It returns None for what is not a tensor or not aligned, and an error code of the kernel as a
 * number.
 *
 * `TensorState(data_ptr, tensors, contents)` remembers which tensors these are, their addresses, their version counters
 * and, of some, their bytes; `holds(tensors)` says whether a list has the same tensors, unchanged.
 *
 * `OPENMP_PARALLEL_FOR` is the address of a `parallel_for` (docs/reference/c-abi.md) on the threads of an OpenMP runtime
 * that the process has loaded: kernels that run between PyTorch's operations then have no threads of their own.
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
#include <time.h>

#define INTERFACE 3            /* Rises when the arguments of a type change; fast_call.py has the same number. */
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

/* A call with tensors. */

typedef PyObject *(*method)(PyObject *self, PyObject *unused);

typedef struct {
    PyObject_HEAD
    run_function run;
    const int64_t *dims;
    const void *host;
    int strict;
    Py_ssize_t input_count, constant_count, output_count;
    uintptr_t *masks;  /* Of each input: the bits of its address that are 0. */
    void **constants;
    method data_ptr;   /* The function of torch.Tensor.data_ptr; its result is an int. */
    PyObject *tensor_class, *makers, *keep; /* A maker: a callable that returns a new output, and its arguments. */
} TensorCall;

/* The values of a tuple of addresses, in memory of PyMem_Malloc. */
static void **
parse_addresses(PyObject *tuple)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    void **values = PyMem_Malloc((count + 1) * sizeof(void *));
    if (values == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        values[i] = PyLong_AsVoidPtr(PyTuple_GetItem(tuple, i));
        if (values[i] == NULL && PyErr_Occurred()) {
            PyMem_Free(values);
            return NULL;
        }
    }
    return values;
}

/* The C function of a bound method without arguments. */
static method
function_of(PyObject *bound)
{
    if (PyCFunction_Check(bound) && PyCFunction_GetFlags(bound) == METH_NOARGS)
        return PyCFunction_GetFunction(bound);
    PyErr_SetString(PyExc_TypeError, "data_ptr is not a method of C without arguments");
    return NULL;
}

static int
tensorcall_parse(TensorCall *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"run",   "dims",      "host",   "strict", "tensor_class", "data_ptr",
                            "masks", "constants", "makers", "keep",   NULL};
    PyObject *run, *dims, *host, *tensor_class, *data_ptr, *masks, *constants, *makers, *keep;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOpO!OO!O!O!O:TensorCall", names, &run, &dims, &host,
                                     &self->strict, &PyType_Type, &tensor_class, &data_ptr, &PyTuple_Type, &masks,
                                     &PyTuple_Type, &constants, &PyTuple_Type, &makers, &keep))
        return -1;
    self->run = (run_function)(uintptr_t)PyLong_AsVoidPtr(run);
    self->dims = PyErr_Occurred() ? NULL : PyLong_AsVoidPtr(dims);
    self->host = PyErr_Occurred() ? NULL : PyLong_AsVoidPtr(host);
    if (PyErr_Occurred())
        return -1;
    if (self->run == NULL) {
        PyErr_SetString(PyExc_ValueError, "no kernel");
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(makers); i++) {
        PyObject *maker = PyTuple_GetItem(makers, i);
        if (!PyTuple_Check(maker) || PyTuple_Size(maker) != 2 || !PyTuple_Check(PyTuple_GetItem(maker, 1))) {
            PyErr_SetString(PyExc_TypeError, "a maker is a tuple of a callable and a tuple of its arguments");
            return -1;
        }
    }
    if ((self->data_ptr = function_of(data_ptr)) == NULL ||
        (self->masks = (uintptr_t *)parse_addresses(masks)) == NULL ||
        (self->constants = parse_addresses(constants)) == NULL)
        return -1;
    self->input_count = PyTuple_Size(masks);
    self->constant_count = PyTuple_Size(constants);
    self->output_count = PyTuple_Size(makers);
    Py_INCREF(self->tensor_class = tensor_class);
    Py_INCREF(self->makers = makers);
    Py_INCREF(self->keep = keep);
    return 0;
}

static PyObject *
tensorcall_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc allocate = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
    TensorCall *self = (TensorCall *)allocate(type, 0);
    if (self != NULL && tensorcall_parse(self, args, kwargs) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
tensorcall_traverse(TensorCall *self, visitproc visit, void *arg)
{
    Py_VISIT(self->tensor_class);
    Py_VISIT(self->makers);
    Py_VISIT(self->keep);
    Py_VISIT((PyObject *)Py_TYPE((PyObject *)self));
    return 0;
}

static void
tensorcall_dealloc(TensorCall *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    PyMem_Free(self->masks);
    PyMem_Free(self->constants);
    Py_XDECREF(self->tensor_class);
    Py_XDECREF(self->makers);
    Py_XDECREF(self->keep);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* The address of a tensor's elements. Returns 1; 0 if `tensor` is none or `mask` has bits of the address; -1 with an
 * exception. */
static int
address_of(const TensorCall *self, PyObject *tensor, uintptr_t mask, void **address)
{
    PyTypeObject *type = Py_TYPE(tensor);
    if ((PyObject *)type != self->tensor_class && !PyType_IsSubtype(type, (PyTypeObject *)self->tensor_class))
        return 0;
    PyObject *number = self->data_ptr(tensor, NULL);
    if (number == NULL)
        return -1;
    *address = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    if (*address == NULL && PyErr_Occurred())
        return -1;
    return ((uintptr_t)*address & mask) == 0;
}

/* New outputs, and their addresses. NULL without an exception if one is not aligned. */
static PyObject *
new_outputs(const TensorCall *self, void **addresses)
{
    PyObject *outputs = PyTuple_New(self->output_count);
    for (Py_ssize_t i = 0; outputs != NULL && i < self->output_count; i++) {
        PyObject *maker = PyTuple_GetItem(self->makers, i);
        PyObject *output = PyObject_CallObject(PyTuple_GetItem(maker, 0), PyTuple_GetItem(maker, 1));
        if (output == NULL || address_of(self, output, ALIGNMENT - 1, &addresses[i]) < 1) {
            Py_XDECREF(output);
            Py_CLEAR(outputs);
        } else {
            PyTuple_SetItem(outputs, i, output);
        }
    }
    return outputs;
}

/* The outputs for a tuple of tensors; a code of the kernel; NULL, also without an exception for the general path. */
static PyObject *
run_on_tensors(const TensorCall *self, PyObject *tensors, void *workspace, void **buffers)
{
    Py_ssize_t count = self->input_count;
    for (Py_ssize_t i = 0; i < count; i++)
        if (address_of(self, PyTuple_GetItem(tensors, i), self->masks[i], &buffers[i]) < 1)
            return NULL;
    memcpy(buffers + count, self->constants, self->constant_count * sizeof(void *));
    PyObject *outputs = new_outputs(self, buffers + count + self->constant_count);
    if (outputs == NULL)
        return NULL;
    int32_t code;
    Py_BEGIN_ALLOW_THREADS
    code = self->run(buffers, self->dims, workspace, self->host);
    Py_END_ALLOW_THREADS
    if (code == 0)
        return outputs;
    Py_DECREF(outputs);
    return PyLong_FromLong(code);
}

static PyObject *
tensorcall_call(TensorCall *self, PyObject *const *args, Py_ssize_t count)
{
    void *few[256], **buffers = few;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "call(tensors, workspace) takes 2 arguments");
        return NULL;
    }
    void *workspace = PyLong_AsVoidPtr(args[1]);
    if (workspace == NULL && PyErr_Occurred())
        return NULL;
    if (self->strict && flushes_subnormals())
        Py_RETURN_NONE;
    PyObject *tensors = PySequence_Tuple(args[0]); /* The caller's list may change while the kernel runs. */
    if (tensors == NULL)
        return NULL;
    size_t total = self->input_count + self->constant_count + self->output_count;
    PyObject *result = NULL;
    if (total > sizeof few / sizeof *few && (buffers = PyMem_Malloc(total * sizeof(void *))) == NULL)
        PyErr_NoMemory();
    else if (PyTuple_Size(tensors) == self->input_count)
        result = run_on_tensors(self, tensors, workspace, buffers);
    if (buffers != few)
        PyMem_Free(buffers);
    Py_DECREF(tensors);
    if (result == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return result;
}

static PyMethodDef tensorcall_methods[] = {
    {"call", (PyCFunction)(void (*)(void))tensorcall_call, METH_FASTCALL,
     "call(tensors, workspace)\n--\n\nThe outputs for a sequence of tensors and the address of a workspace, a code of "
     "the kernel, or None where\nthe general path has to do it."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tensorcall_slots[] = {
    {Py_tp_doc, "Calls one kernel at one tuple of shapes. `keep` is kept alive: whatever the addresses point into."},
    {Py_tp_new, tensorcall_new},
    {Py_tp_traverse, tensorcall_traverse},
    {Py_tp_dealloc, tensorcall_dealloc},
    {Py_tp_methods, tensorcall_methods},
    {0, NULL},
};

static PyType_Spec tensorcall_spec = {
    .name = "kcache_grpc.runtime._fastcall.TensorCall",
    .basicsize = sizeof(TensorCall),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = tensorcall_slots,
};

/* Whether tensors are the same as before, unchanged. */

typedef struct {
    PyObject *tensor; /* Not a reference: it is compared, and never read before it is equal to a live tensor. */
    void *address;
    long version;
    const char *bytes; /* In `contents`; NULL where they are not compared. */
    Py_ssize_t size;
} State;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    State *states;
    method data_ptr;
    PyObject *version_name, *contents;
} TensorState;

/* Read the address and the version counter of a tensor. Returns -1 with an exception. */
static int
read_state(const TensorState *self, PyObject *tensor, State *state)
{
    state->tensor = tensor;
    PyObject *address = self->data_ptr(tensor, NULL);
    if (address == NULL)
        return -1;
    state->address = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    if (state->address == NULL && PyErr_Occurred())
        return -1;
    PyObject *version = PyObject_GetAttr(tensor, self->version_name);
    if (version == NULL)
        return -1;
    state->version = PyLong_AsLong(version);
    Py_DECREF(version);
    return state->version == -1 && PyErr_Occurred() ? -1 : 0;
}

static int
tensorstate_parse(TensorState *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data_ptr", "tensors", "contents", NULL};
    PyObject *data_ptr, *tensors, *contents;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O!:TensorState", names, &data_ptr, &PyList_Type, &tensors,
                                     &PyTuple_Type, &contents))
        return -1;
    Py_ssize_t count = PyList_Size(tensors);
    if (PyTuple_Size(contents) != count) {
        PyErr_SetString(PyExc_ValueError, "contents has bytes or None for each tensor");
        return -1;
    }
    Py_INCREF(self->contents = contents);
    if ((self->data_ptr = function_of(data_ptr)) == NULL ||
        (self->version_name = PyUnicode_InternFromString("_version")) == NULL)
        return -1;
    self->states = PyMem_Calloc(count + 1, sizeof(State));
    if (self->states == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyTypeObject *owner = Py_TYPE(PyCFunction_GetSelf(data_ptr));
    for (; self->count < count; self->count++) {
        PyObject *tensor = PyList_GetItem(tensors, self->count), *content = PyTuple_GetItem(contents, self->count);
        State *state = &self->states[self->count];
        if (tensor == NULL || (content != Py_None &&
                               PyBytes_AsStringAndSize(content, (char **)&state->bytes, &state->size) < 0))
            return -1;
        if (!PyType_IsSubtype(Py_TYPE(tensor), owner)) {
            PyErr_SetString(PyExc_TypeError, "not a tensor");
            return -1;
        }
        if (read_state(self, tensor, state) < 0)
            return -1;
    }
    return 0;
}

static PyObject *
tensorstate_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc allocate = (allocfunc)(uintptr_t)PyType_GetSlot(type, Py_tp_alloc);
    TensorState *self = (TensorState *)allocate(type, 0);
    if (self != NULL && tensorstate_parse(self, args, kwargs) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void
tensorstate_dealloc(TensorState *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyMem_Free(self->states);
    Py_XDECREF(self->version_name);
    Py_XDECREF(self->contents);
    ((freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *
tensorstate_holds(TensorState *self, PyObject *tensors)
{
    if (!PyList_Check(tensors)) {
        PyErr_SetString(PyExc_TypeError, "holds(tensors) takes a list");
        return NULL;
    }
    if (PyList_Size(tensors) != self->count)
        Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < self->count; i++)
        if (PyList_GetItem(tensors, i) != self->states[i].tensor)
            Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const State *before = &self->states[i];
        State now;
        if (read_state(self, before->tensor, &now) < 0)
            return NULL;
        if (now.address != before->address || now.version != before->version ||
            (before->bytes != NULL && memcmp(now.address, before->bytes, before->size) != 0))
            Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

static PyMethodDef tensorstate_methods[] = {
    {"holds", (PyCFunction)(void (*)(void))tensorstate_holds, METH_O,
     "holds(tensors)\n--\n\nWhether a list has the same tensors, at the same addresses, and none was updated. Raises "
     "what their\nattributes raise."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tensorstate_slots[] = {
    {Py_tp_doc, "The identity, address and version counter of each tensor of a list, and of contiguous ones the bytes "
                "in `contents`, if these are not None.\nTensors are not kept alive: the caller discards this object "
                "when one dies."},
    {Py_tp_new, tensorstate_new},
    {Py_tp_dealloc, tensorstate_dealloc},
    {Py_tp_methods, tensorstate_methods},
    {0, NULL},
};

static PyType_Spec tensorstate_spec = {
    .name = "kcache_grpc.runtime._fastcall.TensorState",
    .basicsize = sizeof(TensorState),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = tensorstate_slots,
};

/* Launches on the threads of an OpenMP runtime. */

#define RANGES 64 /* Parts of a launch that are handed out apart. */
#define SLICES 4  /* Slices of a range, if the grain allows them: what is left when one worker is late. */

typedef int32_t (*task_function)(void *closure, int64_t begin, int64_t end, int64_t worker);

/* `ctx` of a host. */
typedef struct {
    int64_t workers;
    void (*parallel)(void (*region)(void *), void *data, unsigned threads, unsigned flags); /* GOMP_parallel */
    int (*thread_number)(void);                                                           /* omp_get_thread_num */
} OpenMp;

typedef struct {
    const OpenMp *openmp;
    task_function task;
    void *closure;
    int64_t extent, step, range, ranges, workers;
    int32_t code; /* The first code other than 0 that a slice returned. */
    struct {
        _Alignas(64) int64_t index; /* The first of a range that was not handed out. */
    } next[RANGES];
} Launch;

/* IEEE floating point as kernels expect it: threads inherit flush-to-zero from the thread that starts them. Returns what
 * was before. */
#if defined(__x86_64__)
static uint64_t
set_floating_point(uint64_t mode)
{
    uint64_t before = __builtin_ia32_stmxcsr();
    if (before != mode)
        __builtin_ia32_ldmxcsr((uint32_t)mode);
    return before;
}
#define DEFAULT_MODE 0x1F80
#elif defined(__aarch64__)
static uint64_t
set_floating_point(uint64_t mode)
{
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    if (before != mode)
        __asm__ volatile("msr fpcr, %0" : : "r"(mode));
    return before;
}
#define DEFAULT_MODE 0
#else
#define set_floating_point(mode) (mode)
#define DEFAULT_MODE 0
#endif

/* Run slices until none is left or one failed; those of the worker's own range first. */
static void
run_slices(Launch *launch, int64_t worker)
{
    int64_t at = worker % launch->ranges;
    for (int64_t tried = 0; tried < launch->ranges; tried++) {
        int64_t *index = &launch->next[at].index, end = at * launch->range + launch->range, begin;
        if (end > launch->extent)
            end = launch->extent;
        while ((begin = __atomic_fetch_add(index, launch->step, __ATOMIC_RELAXED)) < end) {
            int64_t stop = begin + launch->step < end ? begin + launch->step : end;
            int32_t code = __atomic_load_n(&launch->code, __ATOMIC_RELAXED), none = 0;
            if (code == 0)
                code = launch->task(launch->closure, begin, stop, worker);
            if (code != 0) {
                __atomic_compare_exchange_n(&launch->code, &none, code, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
                return;
            }
        }
        at = at + 1 == launch->ranges ? 0 : at + 1;
    }
}

static void
region(void *data)
{
    Launch *launch = data;
    int64_t worker = launch->openmp->thread_number();
    if (worker >= launch->workers)
        return;
    uint64_t before = worker ? set_floating_point(DEFAULT_MODE) : 0;
    run_slices(launch, worker);
    if (worker)
        set_floating_point(before);
}

/* A long slice to a multiple of 64 elements, so that those after it begin where a cache line does. */
static int64_t
whole_lines(int64_t count)
{
    return count >= 4096 ? (count + 63) & -64 : count;
}

static int32_t
openmp_parallel_for(void *ctx, int64_t n, int64_t grain, task_function task, void *closure)
{
    const OpenMp *openmp = ctx;
    Launch launch;
    if (n < 1)
        return 0;
    grain = grain < 1 ? 1 : grain;
    int64_t workers = n / grain < openmp->workers ? n / grain : openmp->workers;
    if (workers < 2)
        return task(closure, 0, n, 0);
    int64_t ranges = workers < RANGES ? workers : RANGES, range = whole_lines((n - 1 + ranges) / ranges);
    int64_t sharing = (workers - 1 + ranges) / ranges; /* Workers of a range. */
    int64_t pieces = range / grain < sharing * SLICES ? range / grain : sharing * SLICES;
    pieces = pieces < 1 ? 1 : pieces;
    launch.openmp = openmp;
    launch.task = task;
    launch.closure = closure;
    launch.extent = n;
    launch.range = range;
    launch.ranges = ranges;
    launch.workers = workers;
    launch.step = whole_lines((range - 1 + pieces) / pieces);
    launch.code = 0;
    for (int64_t i = 0; i < ranges; i++)
        launch.next[i].index = i * range;
    /* All threads of the runtime: GCC's ends and starts threads when regions of different sizes follow each other. */
    openmp->parallel(region, &launch, 0, 0);
    return launch.code;
}

/* Times of launches, of kernels whose schedule has launches:reported. */

typedef struct {
    uint32_t size, abi;
    int64_t workers;
    void *ctx;
    int32_t (*parallel_for)(void *ctx, int64_t n, int64_t grain, task_function task, void *closure);
} Host;

/* `ctx` of a host that times launches: sums by the launch's number, which is the word before its closure. */
typedef struct {
    const Host *host; /* The threads; NULL for the calling thread alone. */
    int64_t launches;
    int64_t *nanoseconds, *calls;
} Times;

static int64_t
now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int32_t
timed_parallel_for(void *ctx, int64_t n, int64_t grain, task_function task, void *closure)
{
    const Times *times = ctx;
    const Host *host = times->host;
    int64_t number = ((const int64_t *)closure)[-1], begin = now();
    int32_t code = host == NULL || n / 2 < grain ? task(closure, 0, n, 0)
                                                 : host->parallel_for(host->ctx, n, grain, task, closure);
    if (number >= 0 && number < times->launches) {
        times->nanoseconds[number] += now() - begin;
        times->calls[number]++;
    }
    return code;
}

/* What one thread of the machine can do at most. */

/* Independent chains of multiply-adds in registers, as many as hide the latency. Returns the operations. */
#define MULTIPLY_ADD(name, features, lanes, chains)                         \
    features static double name(int64_t rounds, volatile float *result)     \
    {                                                                       \
        typedef float vector __attribute__((vector_size(4 * (lanes))));     \
        vector a = {0}, b = {0}, c[chains];                                 \
        a += 0.999f, b += 0.001f;                                           \
        for (int i = 0; i < (chains); i++)                                  \
            c[i] = b * (float)i;                                            \
        for (int64_t round = 0; round < rounds; round++) {                  \
            _Pragma("GCC unroll 24") for (int i = 0; i < (chains); i++)     \
                c[i] = c[i] * a + b;                                        \
        }                                                                   \
        for (int i = 0; i < (chains); i++)                                  \
            *result = c[i][0];                                              \
        return 2.0 * (lanes) * (chains) * (double)rounds;                   \
    }

#if defined(__x86_64__)
MULTIPLY_ADD(multiply_add_512, __attribute__((target("avx512f"))), 16, 24)
MULTIPLY_ADD(multiply_add_256, __attribute__((target("avx2,fma"))), 8, 12)
MULTIPLY_ADD(multiply_add_128, , 4, 12)
#else
MULTIPLY_ADD(multiply_add_128, , 4, 24)
#endif

static double
multiply_adds(int64_t rounds, volatile float *result)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return multiply_add_512(rounds, result);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return multiply_add_256(rounds, result);
#endif
    return multiply_add_128(rounds, result);
}

static PyObject *
run_multiply_adds(PyObject *Py_UNUSED(module), PyObject *number)
{
    volatile float result;
    double operations;
    int64_t rounds = PyLong_AsLongLong(number);
    if (rounds == -1 && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    operations = multiply_adds(rounds, &result);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(operations);
}

static PyObject *
read_buffer(PyObject *Py_UNUSED(module), PyObject *array)
{
    typedef uint64_t vector __attribute__((vector_size(16), aligned(1)));
    Py_buffer view;
    volatile uint64_t result;
    if (PyObject_GetBuffer(array, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    vector sums[4] = {{0}};
    for (const char *at = view.buf, *end = at + view.len / 64 * 64; at < end; at += 64)
        for (int i = 0; i < 4; i++)
            sums[i] |= *(const vector *)(at + 16 * i);
    sums[0] |= sums[1] | sums[2] | sums[3];
    result = sums[0][0] | sums[0][1];
    Py_END_ALLOW_THREADS
    (void)result;
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"multiply_adds", run_multiply_adds, METH_O, "Run so many rounds of multiply-adds in f32; returns the operations."},
    {"read_buffer", read_buffer, METH_O, "Read a buffer once."},
    {NULL, NULL, 0, NULL},
};

static int
add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed;
}

/* Add the address of a function. */
static int
add_address(PyObject *module, const char *name, void *address)
{
    PyObject *number = PyLong_FromVoidPtr(address);
    if (number == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, name, number);
    Py_DECREF(number);
    return failed;
}

static int
module_exec(PyObject *module)
{
    return add_type(module, &fastcall_spec) < 0 || add_type(module, &tensorcall_spec) < 0 ||
                   add_type(module, &tensorstate_spec) < 0 ||
                   add_address(module, "OPENMP_PARALLEL_FOR", (void *)(uintptr_t)openmp_parallel_for) < 0 ||
                   add_address(module, "TIMED_PARALLEL_FOR", (void *)(uintptr_t)timed_parallel_for) < 0 ||
                   PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0 ||
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
    .m_doc = "Calls of CPU kernels with NumPy arrays and with tensors of PyTorch.",
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__fastcall(void)
{
    return PyModuleDef_Init(&module);
}
