/* The loop of `batch_reader.take_plain_commits` in C. Optional: that function is the plain twin, and
 * tests/storage/test_batch_reader.py holds the two equal.
 *
 * Only CPython's limited API, of 3.11: one binary for that version and all later ones.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>
#include <string.h>

/* See storage/ibb/page.py and chunk.py. */
#define PAGE_SIZE 16384
#define PAGE_END 16380
#define CHUNK_HEADER 3
#define LAST_CHUNK_START 16376
#define PLAIN_COMMIT 0x41 /* COMMIT | LAST */
#define NO_LIST 0

PyDoc_STRVAR(take_doc,
"take_plain_commits(page, at, stop, groups)\n--\n\n"
"See `batch_reader.take_plain_commits`. IndexError unless `page` is a whole page, and `at` lies in or behind it.");

static PyObject *
take_plain_commits(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *page_given, *groups;
    Py_ssize_t at, stop, size;
    char *bytes;

    if (!PyArg_ParseTuple(args, "OnnO:take_plain_commits", &page_given, &at, &stop, &groups))
        return NULL;
    if (PyBytes_AsStringAndSize(page_given, &bytes, &size) < 0)
        return NULL;
    if (size != PAGE_SIZE || at < 0) {
        PyErr_SetString(PyExc_IndexError, "no whole page, or no place in it");
        return NULL;
    }
    const unsigned char *page = (const unsigned char *)bytes;
    if (stop > LAST_CHUNK_START + 1)
        stop = LAST_CHUNK_START + 1;
    while (at < stop && page[at] == PLAIN_COMMIT) {
        Py_ssize_t begin = at + CHUNK_HEADER;
        Py_ssize_t end = begin + (page[at + 1] | page[at + 2] << 8);
        if (end > PAGE_END || end == begin || page[begin] != NO_LIST)
            break;
        PyObject *group = PyBytes_FromStringAndSize(bytes + begin + 1, end - begin - 1);
        if (group == NULL)
            return NULL;
        int failed = PyList_Append(groups, group);
        Py_DECREF(group);
        if (failed < 0)
            return NULL;
        at = end;
    }
    return PyLong_FromSsize_t(at);
}

static PyMethodDef methods[] = {
    {"take_plain_commits", take_plain_commits, METH_VARARGS, take_doc},
    {NULL, NULL, 0, NULL},
};

/* Python falls back to the twin when this cannot be imported, so that is how it is switched off. */
static int
refuse_if_unwanted(PyObject *Py_UNUSED(module))
{
    const char *pure = getenv("BINLOG_SERVER_PURE");
    if (pure != NULL && *pure != '\0' && strcmp(pure, "0") != 0) {
        PyErr_SetString(PyExc_ImportError, "BINLOG_SERVER_PURE is set");
        return -1;
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)refuse_if_unwanted},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "storage.binlog._speedups",
    .m_doc = "The loop of `batch_reader` in C.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__speedups(void)
{
    return PyModuleDef_Init(&definition);
}
