/* The same in every module in C: Python's limited API, numbers of the wire and of files, and how the module is left out.
 *
 * Only CPython's limited API, of 3.11: one binary for that version and all later ones.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Below this many bytes, letting other threads run costs more than it gives. */
#define UNLOCK_BYTES 32768

static inline uint16_t
load_u16(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t
load_u32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t
load_u64(const unsigned char *at)
{
    return (uint64_t)load_u32(at) | (uint64_t)load_u32(at + 4) << 32;
}

static inline void
store_u32(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)value;
    at[1] = (unsigned char)(value >> 8);
    at[2] = (unsigned char)(value >> 16);
    at[3] = (unsigned char)(value >> 24);
}

/* Python does without a module that cannot be imported, so that is how it is switched off. */
static inline int
refuse_if_unwanted(PyObject *Py_UNUSED(module))
{
    const char *pure = getenv("BINLOG_SERVER_PURE");
    if (pure != NULL && *pure != '\0' && strcmp(pure, "0") != 0) {
        PyErr_SetString(PyExc_ImportError, "BINLOG_SERVER_PURE is set");
        return -1;
    }
    return 0;
}

/* A module of `methods`; `make_ready` is called when it is imported, and raises what `refuse_if_unwanted` does. */
#define OPTIONAL_MODULE(init, name, doc, make_ready) \
    static PyModuleDef_Slot slots[] = { \
        {Py_mod_exec, (void *)make_ready}, \
        {0, NULL}, \
    }; \
    static struct PyModuleDef definition = { \
        PyModuleDef_HEAD_INIT, \
        .m_name = name, \
        .m_doc = doc, \
        .m_methods = methods, \
        .m_slots = slots, \
    }; \
    PyMODINIT_FUNC init(void) \
    { \
        return PyModuleDef_Init(&definition); \
    }
