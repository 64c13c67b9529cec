/* The loops of `batch_reader.take_plain_commits` and `fill_page.fill_page` in C. Optional: those are the plain twins,
 * and tests/storage/test_batch_reader.py and test_fill_page.py hold them equal.
 *
 * Only CPython's limited API, of 3.11: one binary for that version and all later ones.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
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

PyDoc_STRVAR(fill_doc,
"fill_page(page, at, payloads, ends, index)\n--\n\n"
"See `fill_page.fill_page_plainly`. IndexError unless `page` is a whole page, and the places lie in what was given.");

static PyObject *
fill_page(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *page_given;
    Py_buffer page, payloads, ends;
    Py_ssize_t at, index;

    if (!PyArg_ParseTuple(args, "Ony*y*n:fill_page", &page_given, &at, &payloads, &ends, &index))
        return NULL;
    if (PyObject_GetBuffer(page_given, &page, PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&payloads);
        PyBuffer_Release(&ends);
        return NULL;
    }
    Py_ssize_t count = ends.len / (Py_ssize_t)sizeof(uint64_t);
    int sound = page.len == PAGE_SIZE && at >= 0 && index >= 0 && index <= count;
    const unsigned char *places = ends.buf;
    uint64_t begin = 0;
    if (sound && index > 0)
        memcpy(&begin, places + (index - 1) * (Py_ssize_t)sizeof(begin), sizeof(begin));
    while (sound && index < count) {
        uint64_t end;
        memcpy(&end, places + index * (Py_ssize_t)sizeof(end), sizeof(end)); /* perhaps not aligned */
        if (begin > end || end > (uint64_t)payloads.len) {
            sound = 0;
            break;
        }
        Py_ssize_t size = (Py_ssize_t)(end - begin);
        if (size > PAGE_END || at + CHUNK_HEADER + 1 + size > PAGE_END)
            break;
        unsigned char *out = (unsigned char *)page.buf + at;
        out[0] = PLAIN_COMMIT;
        out[1] = (unsigned char)(size + 1);
        out[2] = (unsigned char)((size + 1) >> 8);
        out[CHUNK_HEADER] = NO_LIST;
        memcpy(out + CHUNK_HEADER + 1, (const char *)payloads.buf + begin, (size_t)size);
        at += CHUNK_HEADER + 1 + size;
        begin = end;
        index++;
    }
    PyBuffer_Release(&page);
    PyBuffer_Release(&payloads);
    PyBuffer_Release(&ends);
    if (!sound) {
        PyErr_SetString(PyExc_IndexError, "no whole page, or a place outside of what was given");
        return NULL;
    }
    return Py_BuildValue("nn", at, index);
}

static PyMethodDef methods[] = {
    {"fill_page", fill_page, METH_VARARGS, fill_doc},
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
    .m_doc = "The loops of `batch_reader` and `fill_page` in C.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__speedups(void)
{
    return PyModuleDef_Init(&definition);
}
