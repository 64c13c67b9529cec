/* The loops of `batch_reader.take_plain_commits`, `fill_page.fill_page`, `fill_page.fill_pages` and
 * `gtid_state.entries_encoded` in C. Optional: those are the plain twins, and tests/storage/log/test_batch_reader.py,
 * binlog/test_fill_page.py and ibb/test_gtid_state.py hold them equal.
 */

#include "../../../protocol/binlog_protocol/speedups.h"

/* See binlog_storage/ibb/page.py and chunk.py. */
#define PAGE_SIZE 16384
#define PAGE_END 16380
#define CHUNK_HEADER 3
#define LAST_CHUNK_START 16376
#define PLAIN_COMMIT 0x41 /* COMMIT | LAST */
#define NO_LIST 0
#define CHUNK_DATA_MAX (PAGE_END - CHUNK_HEADER)

/* A redo record that writes to a page: kind 0, page 1, offset 5, size 7. See binlog_storage/redo/format.py. */
#define WRITE_HEAD 9

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

/* CRC-32C: by the processor's instruction where it has one (x86-64, ARMv8), else by tables, 8 bytes a step. */

#define CRC_TABLES 8
static uint32_t crc_tables[CRC_TABLES][256];

static void
make_crc_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        crc_tables[0][byte] = crc;
    }
    for (int table = 1; table < CRC_TABLES; table++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = crc_tables[table - 1][byte];
            crc_tables[table][byte] = crc >> 8 ^ crc_tables[0][crc & 0xFF];
        }
}

static uint32_t
crc32c_by_tables(const unsigned char *at, size_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= CRC_TABLES; size -= CRC_TABLES, at += CRC_TABLES)
        crc = crc_tables[7][(crc ^ at[0]) & 0xFF] ^ crc_tables[6][(crc >> 8 ^ at[1]) & 0xFF]
            ^ crc_tables[5][(crc >> 16 ^ at[2]) & 0xFF] ^ crc_tables[4][crc >> 24 ^ at[3]]
            ^ crc_tables[3][at[4]] ^ crc_tables[2][at[5]] ^ crc_tables[1][at[6]] ^ crc_tables[0][at[7]];
    while (size-- > 0)
        crc = crc >> 8 ^ crc_tables[0][(crc ^ *at++) & 0xFF];
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_CRC_INSTRUCTION __builtin_cpu_supports("sse4.2")
#define WITH_CRC_INSTRUCTION __attribute__((target("sse4.2")))
#define CRC_OF_WORD(crc, word) ((uint32_t)__builtin_ia32_crc32di(crc, word))
#define CRC_OF_BYTE(crc, byte) __builtin_ia32_crc32qi(crc, byte)
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <arm_acle.h>
#define HAS_CRC_INSTRUCTION 1 /* the compiler was told so */
#define WITH_CRC_INSTRUCTION
#define CRC_OF_WORD(crc, word) __crc32cd(crc, word)
#define CRC_OF_BYTE(crc, byte) __crc32cb(crc, byte)
#elif defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__) \
    && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <arm_acle.h>
#include <sys/auxv.h>
#define HAS_CRC_INSTRUCTION ((getauxval(AT_HWCAP) & 1 << 7) != 0) /* HWCAP_CRC32 */
#define WITH_CRC_INSTRUCTION __attribute__((target("+crc")))
#define CRC_OF_WORD(crc, word) __crc32cd(crc, word)
#define CRC_OF_BYTE(crc, byte) __crc32cb(crc, byte)
#endif

#ifdef HAS_CRC_INSTRUCTION
WITH_CRC_INSTRUCTION static uint32_t
crc32c_by_instruction(const unsigned char *at, size_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= sizeof(uint64_t); size -= sizeof(uint64_t), at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        crc = CRC_OF_WORD(crc, word);
    }
    while (size-- > 0)
        crc = CRC_OF_BYTE(crc, *at++);
    return ~crc;
}
#else
#define HAS_CRC_INSTRUCTION 0
#define crc32c_by_instruction crc32c_by_tables
#endif

PyDoc_STRVAR(crc_doc,
"crc32c(data, by_instruction)\n--\n\n"
"The CRC-32C of `data`, for tests: by the processor's instruction, None if it has none, or by tables.");

static PyObject *
crc32c(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data;
    int by_instruction;

    if (!PyArg_ParseTuple(args, "y*p:crc32c", &data, &by_instruction))
        return NULL;
    PyObject *result;
    if (by_instruction && !HAS_CRC_INSTRUCTION)
        result = Py_NewRef(Py_None);
    else if (by_instruction)
        result = PyLong_FromUnsignedLong(crc32c_by_instruction(data.buf, (size_t)data.len));
    else
        result = PyLong_FromUnsignedLong(crc32c_by_tables(data.buf, (size_t)data.len));
    PyBuffer_Release(&data);
    return result;
}

PyDoc_STRVAR(fill_pages_doc,
"fill_pages(data, at, count, first, then, kind, page_no)\n--\n\n"
"See `fill_page.fill_pages_plainly`. IndexError unless there are as many data, and pages.");

static PyObject *
fill_pages(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data;
    Py_ssize_t at, count;
    unsigned char first, then, kind;
    unsigned int page_no;
    PyObject *pages = NULL, *last = NULL, *redo = NULL, *result = NULL;

    if (!PyArg_ParseTuple(args, "y*nnbbbI:fill_pages", &data, &at, &count, &first, &then, &kind, &page_no))
        return NULL;
    if (at < 0 || count < 1 || at > data.len || count > (data.len - at) / CHUNK_DATA_MAX) {
        PyErr_SetString(PyExc_IndexError, "fewer data than the pages take");
        goto done;
    }
    pages = PyBytes_FromStringAndSize(NULL, (count - 1) * PAGE_SIZE);
    last = PyByteArray_FromStringAndSize(NULL, PAGE_SIZE);
    redo = PyBytes_FromStringAndSize(NULL, kind ? count * (WRITE_HEAD + PAGE_END) : 0);
    if (pages == NULL || last == NULL || redo == NULL)
        goto done;
    unsigned char *out = (unsigned char *)PyBytes_AsString(pages);
    unsigned char *last_out = (unsigned char *)PyByteArray_AsString(last);
    int has_instruction = HAS_CRC_INSTRUCTION;
    unsigned char *log = (unsigned char *)PyBytes_AsString(redo);
    /* Nobody else knows of these pages yet, so other threads may run. */
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t number = 0; number < count; number++, out += PAGE_SIZE) {
        if (number == count - 1)
            out = last_out;
        out[0] = number ? then : first;
        out[1] = CHUNK_DATA_MAX & 0xFF;
        out[2] = CHUNK_DATA_MAX >> 8;
        memcpy(out + CHUNK_HEADER, (const char *)data.buf + at + number * CHUNK_DATA_MAX, CHUNK_DATA_MAX);
        uint32_t crc = has_instruction ? crc32c_by_instruction(out, PAGE_END) : crc32c_by_tables(out, PAGE_END);
        store_u32(out + PAGE_END, crc);
        if (!kind)
            continue;
        log[0] = kind;
        store_u32(log + 1, page_no + (uint32_t)number);
        log[5] = log[6] = 0;
        log[7] = PAGE_END & 0xFF;
        log[8] = PAGE_END >> 8;
        memcpy(log + WRITE_HEAD, out, PAGE_END);
        log += WRITE_HEAD + PAGE_END;
    }
    Py_END_ALLOW_THREADS
    result = Py_BuildValue("OOO", pages, last, redo);

done:
    Py_XDECREF(pages);
    Py_XDECREF(last);
    Py_XDECREF(redo);
    PyBuffer_Release(&data);
    return result;
}

/* See binlog_storage/ibb/compressed_int.py. */
#define COMPRESSED_MAX 9

static unsigned char *
put_compressed(unsigned char *to, uint64_t value)
{
    int length = 1;
    while (length < 8 && value >> (8 * length - 3))
        length++;
    uint64_t word = value << 3 | (uint64_t)(length - 1);
    if (length == 8) { /* there are 1 to 7 bytes, and 9 */
        to[8] = (unsigned char)(value >> 61);
        word |= 7;
    }
    for (int i = 0; i < length; i++)
        to[i] = (unsigned char)(word >> 8 * i);
    return to + length + (length == 8);
}

PyDoc_STRVAR(entries_doc,
"entries_encoded(seq_nos)\n--\n\n"
"See `gtid_state.entries_encoded_plainly`. OverflowError for a number that has no place in a GTID.");

static PyObject *
entries_encoded(PyObject *Py_UNUSED(module), PyObject *seq_nos)
{
    PyObject *domain, *servers, *server, *number;
    Py_ssize_t count = 0, at = 0;

    if (!PyDict_Check(seq_nos)) {
        PyErr_SetString(PyExc_TypeError, "no dict");
        return NULL;
    }
    while (PyDict_Next(seq_nos, &at, &domain, &servers)) {
        if (!PyDict_Check(servers)) {
            PyErr_SetString(PyExc_TypeError, "no dict of a domain");
            return NULL;
        }
        count += PyDict_Size(servers);
    }
    unsigned char *out = PyMem_Malloc((size_t)count * 3 * COMPRESSED_MAX + 1);
    if (out == NULL)
        return PyErr_NoMemory();
    unsigned char *to = out;
    at = 0;
    while (PyDict_Next(seq_nos, &at, &domain, &servers)) {
        Py_ssize_t inside = 0;
        uint64_t domain_id = PyLong_AsUnsignedLongLong(domain);
        while (PyDict_Next(servers, &inside, &server, &number)) {
            to = put_compressed(to, domain_id);
            to = put_compressed(to, PyLong_AsUnsignedLongLong(server));
            to = put_compressed(to, PyLong_AsUnsignedLongLong(number));
        }
    }
    PyObject *result = PyErr_Occurred() ? NULL : Py_BuildValue("ny#", count, (char *)out, (Py_ssize_t)(to - out));
    PyMem_Free(out);
    return result;
}

static PyMethodDef methods[] = {
    {"crc32c", crc32c, METH_VARARGS, crc_doc},
    {"entries_encoded", entries_encoded, METH_O, entries_doc},
    {"fill_page", fill_page, METH_VARARGS, fill_doc},
    {"fill_pages", fill_pages, METH_VARARGS, fill_pages_doc},
    {"take_plain_commits", take_plain_commits, METH_VARARGS, take_doc},
    {NULL, NULL, 0, NULL},
};

static int
make_ready(PyObject *module)
{
    make_crc_tables();
    return refuse_if_unwanted(module);
}

OPTIONAL_MODULE(PyInit__speedups, "binlog_storage.ibb._speedups",
                "The loops of `batch_reader`, `fill_page` and `gtid_state` in C.", make_ready)
