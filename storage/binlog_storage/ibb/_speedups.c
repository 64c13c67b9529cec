/* The loops of `page.sound_run`, `batch_reader.take_plain_commits`, `fill_page.fill_run`, `fill_page.fill_pages`,
 * `fill_page.fill_record`, `fill_page.plain_commit`,
 * `gtid_state.entries_encoded`, `take_changes.take_changes` and `take_records`, and the objects of `tables/rows.py`, in C.
 * Optional: those are the plain twins, and tests/storage/log/test_batch_reader.py, binlog/test_fill_page.py,
 * ibb/test_gtid_state.py, tables/test_take_changes.py, tables/test_take_records.py and tables/test_rows.py hold them equal.
 */

#include "../../../protocol/binlog_protocol/speedups.h"

#include <stddef.h>
#include <structmember.h>

/* See binlog_storage/ibb/page.py and chunk.py. */
#undef PAGE_SIZE /* musl's limits.h has that of the memory */
#define PAGE_SIZE 16384
#define PAGE_END 16380
#define CHUNK_HEADER 3
#define LAST_CHUNK_START 16376
#define COMMIT 0x01
#define REST 0x81 /* COMMIT | CONT */
#define LAST 0x40
#define PLAIN_COMMIT (COMMIT | LAST)
#define REST_OF_COMMIT (REST | LAST)
#define FILLER 0xff
#define NO_LIST 0
#define CHUNK_DATA_MAX (PAGE_END - CHUNK_HEADER)
#define RUN_PAGES 64 /* that are filled by one call, at most */

/* A redo record that writes to a page: kind 0, page 1, offset 5, size 7. See binlog_storage/redo/format.py. */
#define WRITE_HEAD 9

/* Append what was just made; 0 where it was not, or has no room. */
static int
appended(PyObject *list, PyObject *made)
{
    int done = made != NULL && PyList_Append(list, made) == 0;
    Py_XDECREF(made);
    return done;
}

/* Where a chunk ends that begins at `at`, its first byte being `type`; 0 if it is no part of a plain commit. */
static Py_ssize_t
plain_chunk_end(const unsigned char *page, Py_ssize_t at, unsigned char type)
{
    Py_ssize_t begin = at + CHUNK_HEADER, end = begin + (page[at + 1] | page[at + 2] << 8);
    return page[at] == type && end <= PAGE_END && end > begin && page[begin] == NO_LIST ? end : 0;
}

/* The plain commits that lie whole in a page from `at` on; the place behind them, -1 for an exception. */
static Py_ssize_t
take_of_page(const unsigned char *page, Py_ssize_t at, Py_ssize_t stop, PyObject *groups)
{
    Py_ssize_t end;
    if (stop > LAST_CHUNK_START + 1)
        stop = LAST_CHUNK_START + 1;
    while (at < stop && (end = plain_chunk_end(page, at, PLAIN_COMMIT)) > 0) {
        Py_ssize_t payload = at + CHUNK_HEADER + 1;
        if (!appended(groups, PyBytes_FromStringAndSize((const char *)page + payload, end - payload)))
            return -1;
        at = end;
    }
    return at;
}

/* A plain commit that is cut by the end of its page, with its rest: appended. Where it ends in the next page, 0 if it is
 * something else, -1 for an exception. */
static Py_ssize_t
join_of_pages(const unsigned char *page, Py_ssize_t at, const unsigned char *next, PyObject *groups)
{
    Py_ssize_t end = plain_chunk_end(page, at, COMMIT), rest = next[1] | next[2] << 8;
    if (end <= LAST_CHUNK_START || next[0] != REST_OF_COMMIT || CHUNK_HEADER + rest > PAGE_END)
        return 0;
    Py_ssize_t payload = at + CHUNK_HEADER + 1, here = end - payload;
    PyObject *joined = PyBytes_FromStringAndSize(NULL, here + rest);
    if (joined != NULL) {
        char *to = PyBytes_AsString(joined);
        memcpy(to, page + payload, (size_t)here);
        memcpy(to + here, next + CHUNK_HEADER, (size_t)rest);
    }
    return appended(groups, joined) ? CHUNK_HEADER + rest : -1;
}

static int
run_added(PyObject *runs, Py_ssize_t index, Py_ssize_t offset)
{
    return runs == Py_None || appended(runs, Py_BuildValue("nn", index, offset));
}

PyDoc_STRVAR(take_doc,
"take_plain_commits(pages, at, stop, base, groups, runs)\n--\n\n"
"See `batch_reader.take_plain_commits_plainly`. IndexError unless `pages` are whole pages, at least one, and `at` lies\n"
"in or behind the first.");

static PyObject *
take_plain_commits(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *given, *groups, *runs, *result = NULL;
    Py_ssize_t at, stop, base;

    if (!PyArg_ParseTuple(args, "OnnnOO:take_plain_commits", &given, &at, &stop, &base, &groups, &runs))
        return NULL;
    /* A tuple of its own: the pages must stay while groups are made. */
    PyObject *pages = PySequence_Tuple(given);
    if (pages == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_Size(pages), index = 0;
    int sound = count > 0 && at >= 0;
    for (Py_ssize_t i = 0; sound && i < count; i++) {
        PyObject *page = PyTuple_GetItem(pages, i);
        sound = PyBytes_Check(page) && PyBytes_Size(page) == PAGE_SIZE;
    }
    if (!sound || !PyList_Check(groups)) {
        PyErr_SetString(PyExc_IndexError, "no whole pages, or no place in them");
        goto done;
    }
    while (index < count) {
        const unsigned char *page = (const unsigned char *)PyBytes_AsString(PyTuple_GetItem(pages, index));
        Py_ssize_t known = PyList_Size(groups), begin = at;
        at = take_of_page(page, at, stop - index * PAGE_SIZE, groups);
        if (at < 0 ||
            (PyList_Size(groups) > known && !run_added(runs, known, base + index * PAGE_SIZE + begin)))
            goto done;
        if (at > LAST_CHUNK_START) {
            at = 0;
            if (++index * PAGE_SIZE >= stop)
                break;
            continue;
        }
        if (index + 1 == count || index * PAGE_SIZE + at >= stop)
            break;
        known = PyList_Size(groups);
        const unsigned char *next = (const unsigned char *)PyBytes_AsString(PyTuple_GetItem(pages, index + 1));
        Py_ssize_t behind = join_of_pages(page, at, next, groups);
        if (behind == 0)
            break;
        if (behind < 0)
            goto done;
        at = behind;
        index++;
        Py_ssize_t size = PyBytes_Size(PyList_GetItem(groups, known));
        if (!run_added(runs, known, base + index * PAGE_SIZE + at - CHUNK_HEADER - 1 - size))
            goto done;
    }
    result = Py_BuildValue("nn", index, at);
done:
    Py_DECREF(pages);
    return result;
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
#if defined(__clang__) && __clang_major__ >= 14 /* a feature of its own there */
#define WITH_CRC_INSTRUCTION __attribute__((target("sse4.2,crc32")))
#else
#define WITH_CRC_INSTRUCTION __attribute__((target("sse4.2")))
#endif
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
/* The instruction waits three cycles for the one before, and a processor can begin one each cycle: three lanes side by
 * side, of a third of a page each. A lane goes in front of the next one as if that were zeros, whose effect on the
 * register is a sum of what they do to each of its bytes. */
#define LANE 5456

static uint32_t behind_a_lane[4][256];

WITH_CRC_INSTRUCTION static void
make_lane_tables(void)
{
    uint32_t of_bit[32];
    for (int bit = 0; bit < 32; bit++) {
        of_bit[bit] = (uint32_t)1 << bit;
        for (int done = 0; done < LANE; done += 8)
            of_bit[bit] = CRC_OF_WORD(of_bit[bit], (uint64_t)0);
    }
    for (int place = 0; place < 4; place++)
        for (int byte = 0; byte < 256; byte++)
            for (int bit = 0; bit < 8; bit++)
                if (byte >> bit & 1)
                    behind_a_lane[place][byte] ^= of_bit[8 * place + bit];
}

static uint32_t
over_a_lane(uint32_t crc)
{
    return behind_a_lane[0][crc & 0xFF] ^ behind_a_lane[1][crc >> 8 & 0xFF] ^ behind_a_lane[2][crc >> 16 & 0xFF]
           ^ behind_a_lane[3][crc >> 24];
}

WITH_CRC_INSTRUCTION static uint32_t
crc32c_by_instruction(const unsigned char *at, size_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 3 * LANE; size -= 3 * LANE, at += 3 * LANE) {
        uint32_t second = 0, third = 0;
        for (int done = 0; done < LANE; done += 8) {
            uint64_t word[3];
            for (int lane = 0; lane < 3; lane++)
                memcpy(&word[lane], at + lane * LANE + done, sizeof(word[lane]));
            crc = CRC_OF_WORD(crc, word[0]);
            second = CRC_OF_WORD(second, word[1]);
            third = CRC_OF_WORD(third, word[2]);
        }
        crc = over_a_lane(over_a_lane(crc) ^ second) ^ third;
    }
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
#define make_lane_tables() ((void)0)
#endif

PyDoc_STRVAR(sound_doc,
"sound_run(data)\n--\n\n"
"See `page.sound_run`.");

static PyObject *
sound_run(PyObject *Py_UNUSED(module), PyObject *given)
{
    char *data;
    Py_ssize_t size, count = 0;

    if (PyBytes_AsStringAndSize(given, &data, &size) < 0)
        return NULL;
    int has_instruction = HAS_CRC_INSTRUCTION;
    Py_ssize_t pages = size / PAGE_SIZE;
    /* A page of zeros has no CRC of zero, so it ends the run like any other that is not sound. */
    Py_BEGIN_ALLOW_THREADS
    const unsigned char *page = (const unsigned char *)data;
    while (count < pages) {
        uint32_t crc = has_instruction ? crc32c_by_instruction(page, PAGE_END) : crc32c_by_tables(page, PAGE_END);
        if (crc != load_u32(page + PAGE_END))
            break;
        count++;
        page += PAGE_SIZE;
    }
    Py_END_ALLOW_THREADS
    PyObject *found = PyList_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *one = PyBytes_FromStringAndSize(data + i * PAGE_SIZE, PAGE_SIZE);
        if (one == NULL || PyList_SetItem(found, i, one) < 0)
            Py_CLEAR(found);
    }
    return found;
}

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

PyDoc_STRVAR(next_keys_doc,
"next_keys(rows, at, last, count)\n--\n\n"
"See `rows.Listing`: keys of a dict behind the one that was read last (None: from the first one on), at most `count`,\n"
"and the place behind them. `at` is the place behind `last` when that was read. None if `last` is not there.");

/* A dict has its entries in the order in which they came. When it grows it closes the gaps of those that went, so an
 * entry moves towards the front, and never past another one. */
#define NEAR 512

static int
found_in_dict(PyObject *rows, PyObject *wanted, Py_ssize_t *place, Py_ssize_t end)
{
    PyObject *key;
    while (*place < end && PyDict_Next(rows, place, &key, NULL))
        if (key == wanted)
            return 1;
    return 0;
}

static PyObject *
next_keys(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *rows, *last, *key;
    Py_ssize_t at, count, place = 0;

    if (!PyArg_ParseTuple(args, "O!nOn:next_keys", &PyDict_Type, &rows, &at, &last, &count))
        return NULL;
    if (last != Py_None) {
        place = at > 0 ? at - 1 : 0;
        int found = found_in_dict(rows, last, &place, at);
        if (!found) {
            place = at > NEAR ? at - NEAR : 0;
            found = found_in_dict(rows, last, &place, at);
        }
        if (!found) {
            place = 0;
            found = found_in_dict(rows, last, &place, at);
        }
        if (!found)
            Py_RETURN_NONE;
    }
    PyObject *keys = PyList_New(0);
    if (keys == NULL)
        return NULL;
    while (count-- > 0 && PyDict_Next(rows, &place, &key, NULL))
        if (PyList_Append(keys, key) < 0) {
            Py_DECREF(keys);
            return NULL;
        }
    return Py_BuildValue("Nn", keys, place);
}

PyDoc_STRVAR(plain_commit_doc,
"plain_commit(page, at, payload, behind, kind, page_no, epoch, lsn)\n--\n\n"
"See `fill_page.plain_commit_plainly`. IndexError unless `page` is a whole page in which the record has its place.");

/* A mini-transaction of the redo log: see binlog_storage/redo/format.py. */
#define MTR_MAGIC "\xb1\x06mt"
#define MTR_HEAD 20
#define CRC_SIZE 4

static void
put_number(unsigned char *at, uint64_t value, int bytes)
{
    for (; bytes-- > 0; value >>= 8)
        *at++ = (unsigned char)value;
}

static void
begin_mtr(unsigned char *mtr, unsigned int epoch, unsigned long long lsn, Py_ssize_t size)
{
    memcpy(mtr, MTR_MAGIC, 4);
    put_number(mtr + 4, epoch, 4);
    put_number(mtr + 8, lsn, 8);
    put_number(mtr + 16, (uint64_t)size, 4);
}

static void
end_mtr(unsigned char *mtr, Py_ssize_t size, int has_instruction)
{
    size_t checked = (size_t)size - CRC_SIZE;
    store_u32(mtr + checked,
              has_instruction ? crc32c_by_instruction(mtr, checked) : crc32c_by_tables(mtr, checked));
}

static PyObject *
plain_commit(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *page_given, *result = NULL;
    Py_buffer page, payload, behind;
    Py_ssize_t at;
    unsigned int kind, page_no, epoch;
    unsigned long long lsn;

    if (!PyArg_ParseTuple(args, "Ony*y*IIIK:plain_commit", &page_given, &at, &payload, &behind,
                          &kind, &page_no, &epoch, &lsn))
        return NULL;
    if (PyObject_GetBuffer(page_given, &page, PyBUF_WRITABLE) < 0)
        goto no_page;
    Py_ssize_t size = CHUNK_HEADER + 1 + payload.len;
    if (page.len != PAGE_SIZE || at < 0 || payload.len > PAGE_END || size > PAGE_END - at) {
        PyErr_SetString(PyExc_IndexError, "no whole page, or no place in it");
        goto done;
    }
    Py_ssize_t whole = MTR_HEAD + WRITE_HEAD + size + behind.len + 4;
    if (whole > UINT32_MAX) {
        PyErr_SetString(PyExc_IndexError, "too much for a mini-transaction");
        goto done;
    }
    unsigned char *chunk = (unsigned char *)page.buf + at;
    chunk[0] = PLAIN_COMMIT;
    put_number(chunk + 1, (uint64_t)payload.len + 1, 2);
    chunk[CHUNK_HEADER] = NO_LIST;
    memcpy(chunk + CHUNK_HEADER + 1, payload.buf, (size_t)payload.len);
    if ((result = PyBytes_FromStringAndSize(NULL, whole)) == NULL)
        goto done;
    unsigned char *out = (unsigned char *)PyBytes_AsString(result);
    begin_mtr(out, epoch, lsn, whole);
    unsigned char *record = out + MTR_HEAD;
    record[0] = (unsigned char)kind;
    put_number(record + 1, page_no, 4);
    put_number(record + 5, (uint64_t)at, 2);
    put_number(record + 7, (uint64_t)size, 2);
    memcpy(record + WRITE_HEAD, chunk, (size_t)size);
    if (behind.len > 0)
        memcpy(record + WRITE_HEAD + size, behind.buf, (size_t)behind.len);
    end_mtr(out, whole, HAS_CRC_INSTRUCTION);
done:
    PyBuffer_Release(&page);
no_page:
    PyBuffer_Release(&payload);
    PyBuffer_Release(&behind);
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

PyDoc_STRVAR(fill_record_doc,
"fill_record(page, at, head, data, first, then, kind, page_no, begin, unlogged)\n--\n\n"
"See `fill_page.fill_record_plainly`. IndexError unless `page` is a whole page, and the record goes on behind it.");

static void
begin_chunk(unsigned char *at, unsigned char type, Py_ssize_t size)
{
    at[0] = type;
    at[1] = (unsigned char)size;
    at[2] = (unsigned char)(size >> 8);
}

static void
seal_page(unsigned char *page, int has_instruction)
{
    store_u32(page + PAGE_END,
              has_instruction ? crc32c_by_instruction(page, PAGE_END) : crc32c_by_tables(page, PAGE_END));
}

static unsigned char *
put_write(unsigned char *log, unsigned char kind, uint32_t page_no, Py_ssize_t begin, const unsigned char *page,
          Py_ssize_t end)
{
    log[0] = kind;
    store_u32(log + 1, page_no);
    put_number(log + 5, (uint64_t)begin, 2);
    put_number(log + 7, (uint64_t)(end - begin), 2);
    memcpy(log + WRITE_HEAD, page + begin, (size_t)(end - begin));
    return log + WRITE_HEAD + (end - begin);
}

static PyObject *
fill_record(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer page, head, data, unlogged;
    Py_ssize_t at, begin;
    unsigned char first, then, kind;
    unsigned int page_no;
    PyObject *pages = NULL, *last = NULL, *redo = NULL, *result = NULL;

    if (!PyArg_ParseTuple(args, "y*ny*y*bbbIny*:fill_record", &page, &at, &head, &data, &first, &then, &kind, &page_no,
                          &begin, &unlogged))
        return NULL;
    int sound = page.len == PAGE_SIZE && begin >= 0 && begin <= at && at < PAGE_END - CHUNK_HEADER;
    Py_ssize_t room = PAGE_END - CHUNK_HEADER - at;
    Py_ssize_t count = sound && head.len <= room ? (head.len + data.len - room - 1) / CHUNK_DATA_MAX : 0;
    if (count < 1) {
        PyErr_SetString(PyExc_IndexError, "the record does not fill a page behind that place");
        goto done;
    }
    Py_ssize_t left = head.len + data.len - room - count * CHUNK_DATA_MAX, end = CHUNK_HEADER + left;
    pages = PyBytes_FromStringAndSize(NULL, (count + 1) * PAGE_SIZE);
    last = PyByteArray_FromStringAndSize(NULL, PAGE_SIZE);
    redo = PyBytes_FromStringAndSize(NULL, 2 * WRITE_HEAD + PAGE_END - begin + unlogged.len + end);
    if (pages == NULL || last == NULL || redo == NULL)
        goto done;
    unsigned char *out = (unsigned char *)PyBytes_AsString(pages);
    unsigned char *last_out = (unsigned char *)PyByteArray_AsString(last);
    unsigned char *log = (unsigned char *)PyBytes_AsString(redo);
    const unsigned char *from = data.buf;
    int has_instruction = HAS_CRC_INSTRUCTION;
    /* Nobody else knows of these pages yet, so other threads may run. */
    Py_BEGIN_ALLOW_THREADS
    memcpy(out, page.buf, (size_t)at);
    begin_chunk(out + at, first, room);
    memcpy(out + at + CHUNK_HEADER, head.buf, (size_t)head.len);
    memcpy(out + at + CHUNK_HEADER + head.len, from, (size_t)(room - head.len));
    from += room - head.len;
    seal_page(out, has_instruction);
    log = put_write(log, kind, page_no, begin, out, PAGE_END);
    memcpy(log, unlogged.buf, (size_t)unlogged.len);
    log += unlogged.len;
    for (Py_ssize_t number = 0; number < count; number++, from += CHUNK_DATA_MAX) {
        out += PAGE_SIZE;
        begin_chunk(out, then, CHUNK_DATA_MAX);
        memcpy(out + CHUNK_HEADER, from, CHUNK_DATA_MAX);
        seal_page(out, has_instruction);
    }
    begin_chunk(last_out, then | LAST, left);
    memcpy(last_out + CHUNK_HEADER, from, (size_t)left);
    memset(last_out + end, 0, (size_t)(PAGE_SIZE - end));
    put_write(log, kind, page_no + (uint32_t)count + 1, 0, last_out, end);
    Py_END_ALLOW_THREADS
    result = Py_BuildValue("OOnO", pages, last, end, redo);

done:
    Py_XDECREF(pages);
    Py_XDECREF(last);
    Py_XDECREF(redo);
    PyBuffer_Release(&page);
    PyBuffer_Release(&head);
    PyBuffer_Release(&data);
    PyBuffer_Release(&unlogged);
    return result;
}

/* Groups of a run that are laid onto pages one behind the other. */
typedef struct {
    const unsigned char *payloads;
    uint64_t payload_bytes;
    const unsigned char *ends; /* of each, perhaps not aligned */
    Py_ssize_t count;
} Groups;

static uint64_t
end_of_group(const Groups *groups, Py_ssize_t index)
{
    uint64_t end = 0;
    if (index >= 0)
        memcpy(&end, groups->ends + index * (Py_ssize_t)sizeof(end), sizeof(end));
    return end;
}

/* Where the groups from `index` on have their place. */
typedef struct {
    Py_ssize_t index; /* of the first that has none */
    Py_ssize_t pages; /* that are filled */
    Py_ssize_t at;    /* behind the last, in the page behind those */
} Places;

/* Find places on a page from `at` on, and on `more` pages. 0 if the groups do not lie in what was given. */
static int
find_places(const Groups *groups, Py_ssize_t more, Places *places)
{
    for (; places->index < groups->count; places->index++) {
        uint64_t begin = end_of_group(groups, places->index - 1), end = end_of_group(groups, places->index);
        if (begin > end || end > groups->payload_bytes)
            return 0;
        if (end - begin >= (uint64_t)(more + 1) * PAGE_SIZE)
            return 1;
        Py_ssize_t left = (Py_ssize_t)(end - begin) + 1, at = places->at, pages = places->pages;
        for (;;) {
            if (at > LAST_CHUNK_START) {
                if (++pages > more)
                    return 1;
                at = 0;
            }
            Py_ssize_t some = PAGE_END - CHUNK_HEADER - at;
            if (some > left)
                some = left;
            at += CHUNK_HEADER + some;
            if ((left -= some) == 0)
                break;
        }
        places->at = at;
        places->pages = pages;
    }
    return 1;
}

/* Write groups, from one index to another, where `find_places` has found room: `pages`, of which the last is the page
 * behind those that are filled, begin at `at`. */
static void
lay_groups(const Groups *groups, Py_ssize_t index, Py_ssize_t stop, unsigned char *const *pages, Py_ssize_t at)
{
    for (; index < stop; index++) {
        uint64_t begin = end_of_group(groups, index - 1);
        const unsigned char *from = groups->payloads + begin;
        Py_ssize_t left = (Py_ssize_t)(end_of_group(groups, index) - begin);
        for (int first = 1; first || left > 0; first = 0) {
            if (at > LAST_CHUNK_START) {
                memset(*pages + at, FILLER, (size_t)(PAGE_END - at));
                pages++;
                at = 0;
            }
            unsigned char *chunk = *pages + at;
            Py_ssize_t room = PAGE_END - CHUNK_HEADER - at - first, some = left > room ? room : left;
            begin_chunk(chunk, (unsigned char)((first ? COMMIT : REST) | (some == left ? LAST : 0)), some + first);
            if (first)
                chunk[CHUNK_HEADER] = NO_LIST;
            memcpy(chunk + CHUNK_HEADER + first, from, (size_t)some);
            from += some;
            left -= some;
            at += CHUNK_HEADER + first + some;
        }
    }
}

PyDoc_STRVAR(fill_run_doc,
"fill_run(page, at, payloads, ends, index, more, kind, page_no, epoch, lsn)\n--\n\n"
"See `fill_page.fill_run_plainly`. IndexError unless `page` is a whole page, and the places lie in what was given.");

/* The pages behind the one that was given, sealed later: those that will be full, and the one that goes on. */
static PyObject *
pages_for(Py_ssize_t count, unsigned char *const first, unsigned char **places)
{
    PyObject *full = PyList_New(0);
    for (Py_ssize_t number = 0; full != NULL && number < count; number++) {
        PyObject *page = PyBytes_FromStringAndSize(NULL, PAGE_SIZE);
        if (page != NULL)
            places[number] = (unsigned char *)PyBytes_AsString(page);
        if (!appended(full, page))
            Py_CLEAR(full);
    }
    if (full != NULL && count > 0)
        memcpy(places[0], first, PAGE_SIZE);
    return full;
}

static PyObject *
fill_run(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *page_given, *full = NULL, *last = NULL, *mtr = NULL, *result = NULL;
    Py_buffer page, payloads, ends;
    Py_ssize_t at, index, more;
    unsigned char kind, *places[RUN_PAGES + 1];
    unsigned int page_no, epoch;
    unsigned long long lsn;

    if (!PyArg_ParseTuple(args, "Ony*y*nnbIIK:fill_run", &page_given, &at, &payloads, &ends, &index, &more, &kind,
                          &page_no, &epoch, &lsn))
        return NULL;
    if (PyObject_GetBuffer(page_given, &page, PyBUF_WRITABLE) < 0)
        goto no_page;
    Groups groups = {payloads.buf, (uint64_t)payloads.len, ends.buf, ends.len / (Py_ssize_t)sizeof(uint64_t)};
    Places found = {index, 0, at};
    if (page.len != PAGE_SIZE || at < 0 || at > PAGE_END || index < 0 || index > groups.count || more < 0
        || more > RUN_PAGES || !find_places(&groups, more, &found)) {
        PyErr_SetString(PyExc_IndexError, "no whole page, or a place outside of what was given");
        goto done;
    }
    if (found.index == index) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    /* What is logged: the rest of the first page, and all behind it. */
    Py_ssize_t logged = found.pages ? (PAGE_END - at) + (found.pages - 1) * PAGE_END + found.at : found.at - at;
    Py_ssize_t records = found.pages + (at < PAGE_END || !found.pages);
    Py_ssize_t whole = MTR_HEAD + records * WRITE_HEAD + logged + CRC_SIZE;
    full = pages_for(found.pages, page.buf, places);
    mtr = PyBytes_FromStringAndSize(NULL, whole);
    last = found.pages ? PyByteArray_FromStringAndSize(NULL, PAGE_SIZE) : Py_NewRef(page_given);
    if (full == NULL || mtr == NULL || last == NULL)
        goto done;
    places[found.pages] = found.pages ? (unsigned char *)PyByteArray_AsString(last) : (unsigned char *)page.buf;
    lay_groups(&groups, index, found.index, places, at);
    int has_instruction = HAS_CRC_INSTRUCTION;
    unsigned char *out = (unsigned char *)PyBytes_AsString(mtr), *log = out + MTR_HEAD;
    begin_mtr(out, epoch, lsn, whole);
    for (Py_ssize_t number = 0; number <= found.pages; number++) {
        Py_ssize_t from = number ? 0 : at, to = number < found.pages ? PAGE_END : found.at;
        if (from < to)
            log = put_write(log, kind, page_no + (uint32_t)number, from, places[number], to);
        if (number < found.pages)
            seal_page(places[number], has_instruction);
    }
    if (found.pages)
        memset(places[found.pages] + found.at, 0, (size_t)(PAGE_SIZE - found.at));
    end_mtr(out, whole, has_instruction);
    result = Py_BuildValue("OOnnO", full, last, found.at, found.index, mtr);
done:
    PyBuffer_Release(&page);
no_page:
    PyBuffer_Release(&payloads);
    PyBuffer_Release(&ends);
    Py_XDECREF(full);
    Py_XDECREF(last);
    Py_XDECREF(mtr);
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

/* Mini-transactions that go on with a page: see binlog_storage/redo/take_writes.py. */
#define KIND_WRITE 0x10
#define KIND_FLUSHED 0x30
#define NOTE (MTR_HEAD + 9 + CRC_SIZE)

static uint32_t
u16_at(const unsigned char *at)
{
    return (uint32_t)(at[0] | at[1] << 8);
}

/* The offset in the page behind these records; -1 if one of them is another one than a write that goes on there. */
static int32_t
behind_writes(const unsigned char *at, const unsigned char *end, unsigned char kind, uint32_t page_no, uint32_t offset)
{
    while (at < end) {
        if (end - at < WRITE_HEAD || at[0] != kind || load_u32(at + 1) != page_no || u16_at(at + 5) != offset)
            return -1;
        uint32_t size = u16_at(at + 7);
        at += WRITE_HEAD;
        offset += size;
        if (size == 0 || (ptrdiff_t)size > end - at || offset > PAGE_SIZE)
            return -1;
        at += size;
    }
    return (int32_t)offset;
}

PyDoc_STRVAR(writes_doc,
"take_writes(window, at, stop, lsn, epoch, parity, page_no, offset, page)\n--\n\n"
"See `take_writes.take_writes_plainly`. IndexError unless the places lie in the window, and in the page.");

static PyObject *
take_writes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *window, *page;
    Py_ssize_t at, stop;
    unsigned long long lsn;
    unsigned int epoch, parity, page_no, offset;

    if (!PyArg_ParseTuple(args, "O!nnKIIIIO:take_writes", &PyBytes_Type, &window, &at, &stop, &lsn, &epoch, &parity,
                          &page_no, &offset, &page))
        return NULL;
    Py_buffer out = {.buf = NULL};
    if (page != Py_None && PyObject_GetBuffer(page, &out, PyBUF_WRITABLE) < 0)
        return NULL;
    if (at < 0 || stop > PyBytes_Size(window) || offset > PAGE_SIZE || (out.buf != NULL && out.len < PAGE_SIZE)) {
        PyErr_SetString(PyExc_IndexError, "a place outside of the window, or of the page");
        if (out.buf != NULL)
            PyBuffer_Release(&out);
        return NULL;
    }
    const unsigned char *data = (const unsigned char *)PyBytes_AsString(window);
    int has_instruction = HAS_CRC_INSTRUCTION;
    unsigned char kind = (unsigned char)(KIND_WRITE | parity);
    uint64_t told = 0;
    while (stop - at >= NOTE) {
        const unsigned char *mtr = data + at;
        uint64_t size = load_u32(mtr + 16);
        if (memcmp(mtr, MTR_MAGIC, 4) != 0 || load_u32(mtr + 4) != epoch || load_u64(mtr + 8) != lsn || size < NOTE
            || size > (uint64_t)(stop - at))
            break;
        const unsigned char *first = mtr + MTR_HEAD, *end = mtr + size - CRC_SIZE;
        int is_note = size == NOTE && *first == KIND_FLUSHED;
        int32_t behind = is_note ? (int32_t)offset : behind_writes(first, end, kind, page_no, offset);
        size_t checked = (size_t)size - CRC_SIZE;
        if (behind < 0
            || (has_instruction ? crc32c_by_instruction(mtr, checked) : crc32c_by_tables(mtr, checked)) != load_u32(end))
            break;
        if (is_note)
            told = load_u64(first + 1) > told ? load_u64(first + 1) : told;
        else if (out.buf != NULL)
            for (const unsigned char *write = first; write < end; write += WRITE_HEAD + u16_at(write + 7))
                memcpy((unsigned char *)out.buf + u16_at(write + 5), write + WRITE_HEAD, u16_at(write + 7));
        at += (Py_ssize_t)size;
        lsn += size;
        offset = (uint32_t)behind;
    }
    if (out.buf != NULL)
        PyBuffer_Release(&out);
    return Py_BuildValue("nIK", at, offset, (unsigned long long)told);
}

/* A mini-transaction that is one change of a row: see binlog_storage/redo/format.py and tables/records.py. */
#define TABLES_HEAD 5
#define KIND_TABLES 0x50
#define CHANGE_HEAD 33
#define KIND_CHANGE 1
#define NO_ROW 0xFFFFFFFFu

/* Records of the snapshot: see binlog_storage/tables/snapshot.py. Places of records in a block, or a window, have 4 bytes. */
#define SNAPSHOT_ROW_HEAD 13
#define SNAPSHOT_NODE_HEAD 17
#define PLACE_SIZE ((Py_ssize_t)sizeof(uint32_t))

static PyObject *name_commit_no, *name_count, *name_no, *name_packed, *name_rows, *name_tables, *name_top;

static int
make_names(void)
{
    return (name_commit_no = PyUnicode_InternFromString("commit_no")) != NULL
        && (name_count = PyUnicode_InternFromString("count")) != NULL
        && (name_no = PyUnicode_InternFromString("no")) != NULL
        && (name_packed = PyUnicode_InternFromString("packed")) != NULL
        && (name_rows = PyUnicode_InternFromString("rows")) != NULL
        && (name_tables = PyUnicode_InternFromString("tables")) != NULL
        && (name_top = PyUnicode_InternFromString("top")) != NULL;
}

/* A row as it is in the log; None if there is none. */
static PyObject *
row_at(const unsigned char *at, uint32_t size)
{
    return size == NO_ROW ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)size);
}

static int
is_row(PyObject *row, const unsigned char *at, uint32_t size)
{
    if (row == Py_None || size == NO_ROW)
        return row == Py_None && size == NO_ROW;
    return PyBytes_Check(row) && PyBytes_Size(row) == (Py_ssize_t)size
        && memcmp(PyBytes_AsString(row), at, size) == 0;
}

/* What rows.py has as `PlainVersion` and `PlainNode`. Python's garbage collector does not know them, so it walks over none of
 * them, however many rows have changed. No cycle leads through them: see `rows.py`. */
typedef struct {
    PyObject_HEAD
    PyObject *row, *trx, *prev;
} Version;

typedef struct {
    PyObject_HEAD
    PyObject *below, *key, *before;
    uint32_t no, table;
} Node;

static PyTypeObject *version_type, *node_type;

/* The type's memory, without references yet. A heap type is held by each of its objects: the allocator counts that. */
static void *
allocated(PyTypeObject *type)
{
    return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

static void
give_back(PyObject *object, PyTypeObject *type)
{
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *
new_version(PyObject *row, PyObject *trx, PyObject *prev)
{
    Version *version = allocated(version_type);
    if (version != NULL) {
        version->row = Py_NewRef(row);
        version->trx = Py_NewRef(trx);
        version->prev = Py_NewRef(prev);
    }
    return (PyObject *)version;
}

static PyObject *
new_node(uint32_t no, PyObject *below, uint32_t table, PyObject *key, PyObject *before)
{
    Node *node = allocated(node_type);
    if (node != NULL) {
        node->no = no;
        node->table = table;
        node->below = Py_NewRef(below);
        node->key = Py_NewRef(key);
        node->before = Py_NewRef(before);
    }
    return (PyObject *)node;
}

/* A chain of a million is let go one by one: one that frees what is below it from within would use up the stack. */
static void
version_dealloc(PyObject *object)
{
    Version *version = (Version *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *prev = version->prev;
    Py_XDECREF(version->row);
    Py_XDECREF(version->trx);
    give_back(object, type);
    while (prev != NULL && Py_TYPE(prev) == version_type && Py_REFCNT(prev) == 1) {
        PyObject *next = ((Version *)prev)->prev;
        ((Version *)prev)->prev = NULL;
        Py_DECREF(prev);
        prev = next;
    }
    Py_XDECREF(prev);
}

static void
node_dealloc(PyObject *object)
{
    Node *node = (Node *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *below = node->below;
    Py_XDECREF(node->key);
    Py_XDECREF(node->before);
    give_back(object, type);
    while (below != NULL && Py_TYPE(below) == node_type && Py_REFCNT(below) == 1) {
        PyObject *next = ((Node *)below)->below;
        ((Node *)below)->below = NULL;
        Py_DECREF(below);
        below = next;
    }
    Py_XDECREF(below);
}

static int
has_names(PyObject *kwargs)
{
    if (kwargs == NULL || PyDict_Size(kwargs) == 0)
        return 0;
    PyErr_SetString(PyExc_TypeError, "no names of arguments");
    return 1;
}

static PyObject *
version_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *kwargs)
{
    PyObject *row, *trx, *prev;
    if (has_names(kwargs) || !PyArg_UnpackTuple(args, "Version", 3, 3, &row, &trx, &prev))
        return NULL;
    return new_version(row, trx, prev);
}

/* -1 with an error. */
static int
as_u32(PyObject *number, uint32_t *found)
{
    unsigned long value = PyLong_AsUnsignedLong(number);
    if (value == (unsigned long)-1 && PyErr_Occurred())
        return -1;
    if (value > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a number of 4 bytes is asked for");
        return -1;
    }
    *found = (uint32_t)value;
    return 0;
}

static PyObject *
node_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *kwargs)
{
    PyObject *no, *below, *table, *key, *before;
    uint32_t its_no, its_table;
    if (has_names(kwargs) || !PyArg_UnpackTuple(args, "Node", 5, 5, &no, &below, &table, &key, &before)
        || as_u32(no, &its_no) < 0 || as_u32(table, &its_table) < 0)
        return NULL;
    return new_node(its_no, below, its_table, key, before);
}

static PyMemberDef version_members[] = {
    {"row", T_OBJECT_EX, offsetof(Version, row), READONLY, "Bytes; None: deleted."},
    {"trx", T_OBJECT_EX, offsetof(Version, trx), 0, "The transaction that has made it."},
    {"prev", T_OBJECT, offsetof(Version, prev), 0, "The version before, or None."},
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef node_members[] = {
    {"no", T_UINT, offsetof(Node, no), READONLY, NULL},
    {"below", T_OBJECT_EX, offsetof(Node, below), READONLY, NULL},
    {"table", T_UINT, offsetof(Node, table), READONLY, NULL},
    {"key", T_OBJECT_EX, offsetof(Node, key), READONLY, NULL},
    {"before", T_OBJECT_EX, offsetof(Node, before), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot version_slots[] = {
    {Py_tp_doc, "Version(row, trx, prev)\n--\n\nSee `rows.PlainVersion`."},
    {Py_tp_new, (void *)version_new},
    {Py_tp_dealloc, (void *)version_dealloc},
    {Py_tp_members, version_members},
    {0, NULL},
};

static PyType_Slot node_slots[] = {
    {Py_tp_doc, "Node(no, below, table, key, before)\n--\n\nSee `rows.PlainNode`."},
    {Py_tp_new, (void *)node_new},
    {Py_tp_dealloc, (void *)node_dealloc},
    {Py_tp_members, node_members},
    {0, NULL},
};

static PyType_Spec version_spec = {
    .name = "binlog_storage.ibb._speedups.Version",
    .basicsize = sizeof(Version),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = version_slots,
};

static PyType_Spec node_spec = {
    .name = "binlog_storage.ibb._speedups.Node",
    .basicsize = sizeof(Node),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = node_slots,
};

/* Rows of a table that stay where a start has found them, in blocks of the snapshot and windows of the log, until they are
 * changed: see `binlog_storage/tables/rows.py`. Only the latch's holder changes them, but for those who load them; anybody
 * reads. Whatever could run other code (making an object that Python's garbage collector knows) comes behind the last look
 * at memory. */
typedef struct {
    const unsigned char *key, *row; /* key NULL: it is not here any more */
    uint32_t key_size, row_size;    /* of a row NO_ROW: it is deleted */
    uint32_t key_in, row_in;        /* which buffers */
    uint32_t owner, below, hash;    /* below: an index of `Older` */
} Entry;

typedef struct {
    const unsigned char *row;
    uint32_t size, in, owner, below;
} Older;

typedef struct {
    uint32_t hash, entry; /* its index + 1; 0: free */
} Slot;

/* A buffer, or an owner: an object that is let go when nothing refers to it any more. */
typedef struct {
    PyObject *object;
    size_t count;
} Held;

typedef struct {
    Held *all;
    uint32_t used, room, last; /* last: stays, as the next one is likely to be the same. Index 0 is never let go */
} Keeper;

typedef struct {
    PyObject_HEAD
    PyObject *rows, *committed;
    Entry *entries;
    Older *older;
    Slot *slots;
    uint32_t used, room, alive, mask, found; /* found: the entry that was found last */
    uint32_t older_used, older_room, older_free; /* index 0 is nothing */
    Keeper buffers, owners;
    int is_loaded;
} PackedRows;

static uint64_t hash_secret[2];
static PyTypeObject *packed_type;

/* Python's own secret of hashes, by what it makes of two words. */
static int
make_secret(void)
{
    for (int at = 0; at < 2; at++) {
        PyObject *word = PyUnicode_FromFormat("packed rows %d", at);
        Py_hash_t hash = word == NULL ? -1 : PyObject_Hash(word);
        Py_XDECREF(word);
        if (hash == -1)
            return -1;
        hash_secret[at] = (uint64_t)hash;
    }
    return 0;
}

#define ROTATED(x, by) ((x) << (by) | (x) >> (64 - (by)))

static inline void
sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = ROTATED(v[1], 13) ^ v[0];
    v[0] = ROTATED(v[0], 32);
    v[2] += v[3];
    v[3] = ROTATED(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = ROTATED(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = ROTATED(v[1], 17) ^ v[2];
    v[2] = ROTATED(v[2], 32);
}

/* SipHash-1-3 with a secret, as clients choose the keys. */
static uint32_t
hash_of(const unsigned char *key, size_t size)
{
    uint64_t v[4] = {hash_secret[0] ^ 0x736f6d6570736575u, hash_secret[1] ^ 0x646f72616e646f6du,
                     hash_secret[0] ^ 0x6c7967656e657261u, hash_secret[1] ^ 0x7465646279746573u};
    uint64_t last = (uint64_t)size << 56;
    size_t at = 0;
    for (; at + 8 <= size; at += 8) {
        uint64_t word = load_u64(key + at);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    for (int shift = 0; at < size; at++, shift += 8)
        last |= (uint64_t)key[at] << shift;
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    uint64_t found = v[0] ^ v[1] ^ v[2] ^ v[3];
    return (uint32_t)(found ^ found >> 32);
}

/* Make room for one more element. */
static int
has_room(void **all, uint32_t used, uint32_t *room, size_t size)
{
    if (used < *room)
        return 0;
    uint64_t wanted = *room == 0 ? 16 : (uint64_t)*room * 2;
    void *moved = wanted > UINT32_MAX / 2 ? NULL : PyMem_Realloc(*all, (size_t)wanted * size);
    if (moved == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *all = moved;
    *room = (uint32_t)wanted;
    return 0;
}

static void
let_go(Keeper *keeper, uint32_t at)
{
    Held *held = keeper->all + at;
    if (at != 0 && --held->count == 0 && at != keeper->last)
        Py_CLEAR(held->object);
}

/* The index of an object, which is kept from the first reference on. 0 with an error. */
static uint32_t
index_of(Keeper *keeper, PyObject *object)
{
    Held *last = keeper->all + keeper->last;
    if (keeper->last != 0 && last->object == object)
        return keeper->last;
    uint32_t at = 0;
    if (keeper->last != 0 && last->count == 0) { /* nobody has wanted it */
        at = keeper->last;
        Py_CLEAR(last->object);
    } else {
        for (uint32_t back = 1; back <= 4 && back < keeper->used; back++)
            if (keeper->all[keeper->used - back].object == object)
                return keeper->last = keeper->used - back;
        if (has_room((void **)&keeper->all, keeper->used, &keeper->room, sizeof(Held)) < 0)
            return 0;
        at = keeper->used++;
    }
    keeper->all[at] = (Held){Py_NewRef(object), 0};
    return keeper->last = at;
}

static void
clear_keeper(Keeper *keeper)
{
    for (uint32_t at = 0; at < keeper->used; at++)
        Py_CLEAR(keeper->all[at].object);
    PyMem_Free(keeper->all);
    *keeper = (Keeper){0};
}

/* Nothing is in it any more. */
static void
empty_packed(PackedRows *self)
{
    PyMem_Free(self->entries);
    PyMem_Free(self->older);
    PyMem_Free(self->slots);
    self->entries = NULL;
    self->older = NULL;
    self->slots = NULL;
    self->used = self->room = self->alive = self->mask = self->found = 0;
    self->older_used = self->older_room = self->older_free = 0;
    clear_keeper(&self->buffers);
    clear_keeper(&self->owners);
}

static void
drop_older(PackedRows *self, uint32_t at)
{
    while (at != 0) {
        Older *older = self->older + at;
        uint32_t below = older->below;
        let_go(&self->buffers, older->in);
        let_go(&self->owners, older->owner);
        older->below = self->older_free;
        self->older_free = at;
        at = below;
    }
}

/* An older version. The references to its buffer and owner are the caller's to count. 0 with an error. */
static uint32_t
new_older(PackedRows *self, const unsigned char *row, uint32_t size, uint32_t in, uint32_t owner, uint32_t below)
{
    uint32_t at = self->older_free;
    if (at != 0)
        self->older_free = self->older[at].below;
    else {
        if (has_room((void **)&self->older, self->older_used, &self->older_room, sizeof(Older)) < 0)
            return 0;
        if (self->older_used == 0)
            self->older_used = 1;
        at = self->older_used++;
    }
    self->older[at] = (Older){row, size, in, owner, below};
    return at;
}

static void
drop_entry(PackedRows *self, Entry *entry)
{
    let_go(&self->buffers, entry->key_in);
    let_go(&self->buffers, entry->row_in);
    let_go(&self->owners, entry->owner);
    drop_older(self, entry->below);
    entry->key = NULL;
    if (--self->alive == 0 && self->is_loaded)
        empty_packed(self);
}

/* Whether an entry is of that owner. One that came back may have two indexes. */
static int
is_of(PackedRows *self, Entry *entry, uint32_t owner)
{
    return entry->owner == owner || self->owners.all[entry->owner].object == self->owners.all[owner].object;
}

static inline int
is_entry(const Entry *entry, const unsigned char *key, size_t size, uint32_t hash)
{
    return entry->hash == hash && entry->key != NULL && entry->key_size == size && memcmp(entry->key, key, size) == 0;
}

static Entry *
find_entry(PackedRows *self, const unsigned char *key, size_t size, uint32_t hash)
{
    if (self->alive == 0)
        return NULL;
    /* Mostly rows are changed in the order in which they were made, and undone in the other one: neighbours are at hand. */
    for (int step = -1; step <= 1; step += 2) {
        uint32_t at = self->found + (uint32_t)step;
        if (at < self->used && is_entry(self->entries + at, key, size, hash))
            return self->entries + (self->found = at);
    }
    for (uint32_t slot = hash & self->mask; self->slots[slot].entry != 0; slot = (slot + 1) & self->mask) {
        if (self->slots[slot].hash != hash)
            continue;
        uint32_t at = self->slots[slot].entry - 1;
        if (is_entry(self->entries + at, key, size, hash))
            return self->entries + (self->found = at);
    }
    return NULL;
}

static int
grow_slots(PackedRows *self)
{
    uint64_t size = self->mask == 0 ? 64 : ((uint64_t)self->mask + 1) * 2;
    Slot *slots = size > UINT32_MAX ? NULL : PyMem_Calloc((size_t)size, sizeof(*slots));
    if (slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyMem_Free(self->slots);
    self->slots = slots;
    self->mask = (uint32_t)(size - 1);
    for (uint32_t at = 0; at < self->used; at++) {
        uint32_t slot = self->entries[at].hash & self->mask;
        while (slots[slot].entry != 0)
            slot = (slot + 1) & self->mask;
        slots[slot] = (Slot){self->entries[at].hash, at + 1};
    }
    return 0;
}

/* A new entry, without a row. Only while a start loads. NULL with an error. */
static Entry *
new_entry(PackedRows *self, const unsigned char *key, uint32_t size, uint32_t hash, uint32_t in)
{
    if ((self->mask == 0 || self->used > self->mask / 2) && grow_slots(self) < 0)
        return NULL;
    if (has_room((void **)&self->entries, self->used, &self->room, sizeof(Entry)) < 0)
        return NULL;
    uint32_t slot = hash & self->mask;
    while (self->slots[slot].entry != 0)
        slot = (slot + 1) & self->mask;
    Entry *entry = self->entries + self->used++;
    self->slots[slot] = (Slot){hash, self->used};
    self->alive++;
    self->buffers.all[in].count++;
    *entry = (Entry){.key = key, .key_size = size, .row_size = NO_ROW, .key_in = in, .hash = hash};
    return entry;
}

/* Whether the log has committed a transaction. -1 with an error. */
static int
is_committed(PyObject *trx)
{
    PyObject *number = PyObject_GetAttr(trx, name_commit_no);
    long long commit_no = number == NULL ? -1 : PyLong_AsLongLong(number);
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : commit_no == 0;
}

/* Forget what a transaction that the log has committed makes superfluous. 1 if there still is an entry, -1 with an error. */
static int
settle_entry(PackedRows *self, Entry *entry)
{
    if (entry->owner == 0)
        return 1;
    int committed = is_committed(self->owners.all[entry->owner].object);
    if (committed <= 0)
        return committed < 0 ? -1 : 1;
    if (entry->row_size == NO_ROW) {
        drop_entry(self, entry);
        return 0;
    }
    drop_older(self, entry->below);
    let_go(&self->owners, entry->owner);
    entry->below = entry->owner = 0;
    return 1;
}

static void
set_row(PackedRows *self, Entry *entry, const unsigned char *row, uint32_t size, uint32_t in)
{
    entry->row = row;
    entry->row_size = size;
    entry->row_in = size == NO_ROW ? 0 : in;
    self->buffers.all[entry->row_in].count++;
}

/* The version below, of somebody who has committed it. 0 if there is none; `failed` is set with an error. */
static uint32_t
committed_below(PackedRows *self, const unsigned char *row, uint32_t size, uint32_t in, int *failed)
{
    if (size == NO_ROW)
        return 0;
    uint32_t at = new_older(self, row, size, in, 0, 0);
    if (at == 0)
        *failed = 1;
    else
        self->buffers.all[in].count++;
    return at;
}

/* A version of the same transaction in front of those that are below. */
static uint32_t
own_below(PackedRows *self, Entry *entry, const unsigned char *row, uint32_t size, uint32_t in, int *failed)
{
    in = size == NO_ROW ? 0 : in;
    uint32_t at = new_older(self, row, size, in, entry->owner, entry->below);
    if (at == 0)
        *failed = 1;
    else {
        self->buffers.all[in].count++;
        self->owners.all[entry->owner].count++;
    }
    return at;
}

/* A row of the snapshot. */
static int
pack_row(PackedRows *self, uint32_t in, uint32_t hash, const unsigned char *key, uint32_t key_size,
         const unsigned char *row, uint32_t size)
{
    Entry *entry = find_entry(self, key, key_size, hash);
    if (entry == NULL) {
        if ((entry = new_entry(self, key, key_size, hash, in)) == NULL)
            return -1;
    } else { /* it was read twice */
        let_go(&self->buffers, entry->row_in);
        let_go(&self->owners, entry->owner);
        drop_older(self, entry->below);
        entry->owner = entry->below = 0;
    }
    set_row(self, entry, row, size, in);
    return 0;
}

/* A node of the snapshot: see `take_nodes_plainly`. */
static int
pack_node(PackedRows *self, uint32_t in, uint32_t owner, const unsigned char *key, uint32_t key_size,
          const unsigned char *before, uint32_t size)
{
    uint32_t hash = hash_of(key, key_size);
    int failed = 0;
    Entry *entry = find_entry(self, key, key_size, hash);
    if (entry == NULL) {
        if ((entry = new_entry(self, key, key_size, hash, in)) == NULL)
            return -1;
    } else if (is_of(self, entry, owner)) { /* it has changed that row before */
        uint32_t below = own_below(self, entry, before, size, in, &failed);
        if (!failed)
            entry->below = below;
        return failed ? -1 : 0;
    } else { /* nobody else has seen it yet */
        let_go(&self->owners, entry->owner);
        drop_older(self, entry->below);
    }
    entry->owner = owner;
    self->owners.all[owner].count++;
    entry->below = committed_below(self, before, size, in, &failed);
    return failed ? -1 : 0;
}

/* A change of the log: see `take_changes_plainly`. */
static int
pack_change(PackedRows *self, uint32_t in, uint32_t owner, const unsigned char *head)
{
    uint32_t key_size = load_u32(head + 21), before_size = load_u32(head + 25), after_size = load_u32(head + 29);
    const unsigned char *key = head + CHANGE_HEAD, *before = key + key_size;
    const unsigned char *after = before + (before_size == NO_ROW ? 0 : before_size);
    uint32_t hash = hash_of(key, key_size);
    int failed = 0;
    Entry *entry = find_entry(self, key, key_size, hash);
    if (entry != NULL && !is_of(self, entry, owner)) {
        int is_there = settle_entry(self, entry);
        if (is_there < 0)
            return -1;
        if (is_there == 0)
            entry = NULL;
    }
    if (entry == NULL) {
        if ((entry = new_entry(self, key, key_size, hash, in)) == NULL)
            return -1;
        entry->below = committed_below(self, before, before_size, in, &failed);
        self->owners.all[owner].count++;
    } else {
        uint32_t below;
        int is_same = entry->row_size == before_size
            && (before_size == NO_ROW || memcmp(entry->row, before, before_size) == 0);
        if (is_same) { /* it is as the log has it: its references go along */
            below = new_older(self, entry->row, entry->row_size, entry->row_in, entry->owner, entry->below);
            if (below == 0)
                return -1;
            self->owners.all[owner].count++;
        } else {
            int is_own = is_of(self, entry, owner);
            if (is_own)
                below = own_below(self, entry, before, before_size, in, &failed);
            else
                below = committed_below(self, before, before_size, in, &failed);
            if (failed)
                return -1;
            let_go(&self->buffers, entry->row_in);
            if (is_own)
                owner = entry->owner;
            else {
                let_go(&self->owners, entry->owner);
                drop_older(self, entry->below);
                self->owners.all[owner].count++;
            }
        }
        entry->below = below;
    }
    entry->owner = owner;
    set_row(self, entry, after, after_size, in);
    return failed ? -1 : 0;
}

/* --- the type --- */

static PyObject *
packed_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *rows, *committed;
    if (has_names(kwargs) || !PyArg_ParseTuple(args, "O!O:PackedRows", &PyDict_Type, &rows, &committed))
        return NULL;
    PackedRows *self = allocated(type);
    if (self == NULL)
        return NULL;
    self->rows = Py_NewRef(rows);
    self->committed = Py_NewRef(committed);
    return (PyObject *)self;
}

static void
packed_dealloc(PyObject *object)
{
    PackedRows *self = (PackedRows *)object;
    PyTypeObject *type = Py_TYPE(object);
    empty_packed(self);
    Py_CLEAR(self->rows);
    Py_CLEAR(self->committed);
    give_back(object, type);
}

/* Begin with the index 0 of buffers and owners, which stand for no buffer, and for those who have committed. */
static int
make_ready_to_pack(PackedRows *self)
{
    Keeper *keepers[] = {&self->buffers, &self->owners};
    for (int at = 0; at < 2; at++) {
        Keeper *keeper = keepers[at];
        if (keeper->used > 0)
            continue;
        if (has_room((void **)&keeper->all, 0, &keeper->room, sizeof(Held)) < 0)
            return -1;
        keeper->all[0] = (Held){at == 0 ? NULL : Py_NewRef(self->committed), 0};
        keeper->used = 1;
    }
    return 0;
}

/* The entry of a key that is not among the rows that are objects; NULL without one, or with an error. */
static Entry *
entry_of(PackedRows *self, PyObject *key)
{
    if (!PyBytes_Check(key)) {
        PyErr_SetString(PyExc_TypeError, "a key is bytes");
        return NULL;
    }
    const unsigned char *bytes = (const unsigned char *)PyBytes_AsString(key);
    size_t size = (size_t)PyBytes_Size(key);
    Entry *entry = self->alive == 0 ? NULL : find_entry(self, bytes, size, hash_of(bytes, size));
    return entry == NULL || settle_entry(self, entry) <= 0 ? NULL : entry;
}

/* The versions of an entry as objects. */
static PyObject *
versions_of(PackedRows *self, Entry *entry)
{
    Py_ssize_t count = 1, made = 0;
    for (uint32_t at = entry->below; at != 0; at = self->older[at].below)
        count++;
    PyObject **parts = PyMem_Malloc((size_t)count * 2 * sizeof(*parts)), *version = NULL;
    if (parts == NULL)
        return PyErr_NoMemory();
    for (uint32_t at = 0; made < count; at = made == 0 ? entry->below : self->older[at].below, made++) {
        uint32_t owner = made == 0 ? entry->owner : self->older[at].owner;
        PyObject *row = made == 0 ? row_at(entry->row, entry->row_size) : row_at(self->older[at].row, self->older[at].size);
        if (row == NULL)
            goto done;
        parts[2 * made] = row;
        parts[2 * made + 1] = Py_NewRef(owner == 0 ? self->committed : self->owners.all[owner].object);
    }
    version = Py_NewRef(Py_None);
    for (Py_ssize_t at = count - 1; at >= 0 && version != NULL; at--) {
        PyObject *above = new_version(parts[2 * at], parts[2 * at + 1], version);
        Py_DECREF(version);
        version = above;
    }

done:
    while (made-- > 0) {
        Py_DECREF(parts[2 * made]);
        Py_DECREF(parts[2 * made + 1]);
    }
    PyMem_Free(parts);
    return version;
}

PyDoc_STRVAR(look_doc,
"look(key)\n--\n\nThe newest version of a row; None if there is none. It stays packed.");

static PyObject *
packed_look(PyObject *object, PyObject *key)
{
    PackedRows *self = (PackedRows *)object;
    PyObject *found = PyDict_GetItemWithError(self->rows, key);
    if (found != NULL)
        return Py_NewRef(found);
    Entry *entry = PyErr_Occurred() ? NULL : entry_of(self, key);
    if (entry != NULL)
        return versions_of(self, entry);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(take_doc_of_rows,
"take(key)\n--\n\nAs `look`; it is an object among the others then. Under the latch.");

static PyObject *
packed_take(PyObject *object, PyObject *key)
{
    PackedRows *self = (PackedRows *)object;
    PyObject *found = PyDict_GetItemWithError(self->rows, key);
    if (found != NULL)
        return Py_NewRef(found);
    Entry *entry = PyErr_Occurred() ? NULL : entry_of(self, key);
    if (entry == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    if ((found = versions_of(self, entry)) == NULL)
        return NULL;
    if (PyDict_SetItem(self->rows, key, found) < 0) {
        Py_DECREF(found);
        return NULL;
    }
    drop_entry(self, entry); /* entries do not move but while a start loads */
    return found;
}

PyDoc_STRVAR(owner_doc,
"owner(key)\n--\n\nThe transaction of a row's newest version; None if the row is not packed.");

static PyObject *
packed_owner(PyObject *object, PyObject *key)
{
    PackedRows *self = (PackedRows *)object;
    Entry *entry = entry_of(self, key);
    if (entry == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    return Py_NewRef(entry->owner == 0 ? self->committed : self->owners.all[entry->owner].object);
}

PyDoc_STRVAR(undo_doc,
"undo(key, trx)\n--\n\n"
"Undo the last change of a row, which is that transaction's. Under the latch. Returns whether a row is left; None if it\n"
"is not packed. RuntimeError if the change is another one's.");

static PyObject *
packed_undo(PyObject *object, PyObject *args)
{
    PackedRows *self = (PackedRows *)object;
    PyObject *key, *trx;
    if (!PyArg_ParseTuple(args, "O!O:undo", &PyBytes_Type, &key, &trx))
        return NULL;
    Entry *entry = entry_of(self, key);
    if (entry == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    if (entry->owner == 0 || self->owners.all[entry->owner].object != trx) {
        PyErr_SetString(PyExc_RuntimeError, "a row was changed by another transaction than the one that had its lock");
        return NULL;
    }
    uint32_t at = entry->below;
    Older *older = self->older + at;
    if (at == 0 || (older->size == NO_ROW && older->below == 0)) {
        drop_entry(self, entry);
        return PyBool_FromLong(0);
    }
    let_go(&self->buffers, entry->row_in);
    let_go(&self->owners, entry->owner);
    entry->row = older->row;
    entry->row_size = older->size;
    entry->row_in = older->in;
    entry->owner = older->owner;
    entry->below = older->below;
    older->below = self->older_free;
    self->older_free = at;
    return PyBool_FromLong(1);
}

PyDoc_STRVAR(keys_doc,
"keys(first, count)\n--\n\nThe keys in a part of the places, those of deleted rows too.");

static PyObject *
packed_keys(PyObject *object, PyObject *args)
{
    PackedRows *self = (PackedRows *)object;
    unsigned int first, count;
    if (!PyArg_ParseTuple(args, "II:keys", &first, &count))
        return NULL;
    PyObject *keys = PyList_New(0);
    for (uint32_t at = first; keys != NULL && at < self->used && at - first < count; at++) {
        Entry *entry = self->entries + at;
        int is_there = entry->key == NULL ? 0 : settle_entry(self, entry);
        PyObject *key = NULL;
        if (is_there == 0)
            continue;
        if (is_there < 0 || (key = PyBytes_FromStringAndSize((const char *)entry->key, (Py_ssize_t)entry->key_size)) == NULL
            || PyList_Append(keys, key) < 0)
            Py_CLEAR(keys);
        Py_XDECREF(key);
    }
    return keys;
}

PyDoc_STRVAR(records_doc,
"records(table, first, count)\n--\n\nThe rows in a part of the places as records of a snapshot, and their number.");

static PyObject *
packed_records(PyObject *object, PyObject *args)
{
    PackedRows *self = (PackedRows *)object;
    unsigned int table, first, count;
    if (!PyArg_ParseTuple(args, "III:records", &table, &first, &count))
        return NULL;
    uint32_t end = first >= self->used ? first : self->used - first < count ? self->used : first + count;
    Py_ssize_t size = 0, rows = 0;
    for (uint32_t at = first; at < end; at++) {
        Entry *entry = self->entries + at;
        if (entry->key == NULL || entry->row_size == NO_ROW)
            continue;
        size += (Py_ssize_t)SNAPSHOT_ROW_HEAD + entry->key_size + entry->row_size;
        rows++;
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, size);
    if (made == NULL)
        return NULL;
    unsigned char *to = (unsigned char *)PyBytes_AsString(made);
    for (uint32_t at = first; at < end; at++) {
        Entry *entry = self->entries + at;
        if (entry->key == NULL || entry->row_size == NO_ROW)
            continue;
        *to = 'R';
        store_u32(to + 1, table);
        store_u32(to + 5, entry->key_size);
        store_u32(to + 9, entry->row_size);
        memcpy(to + SNAPSHOT_ROW_HEAD, entry->key, entry->key_size);
        memcpy(to + SNAPSHOT_ROW_HEAD + entry->key_size, entry->row, entry->row_size);
        to += SNAPSHOT_ROW_HEAD + entry->key_size + entry->row_size;
    }
    return Py_BuildValue("Nn", made, rows);
}

PyDoc_STRVAR(settle_doc,
"settle()\n--\n\nAll is loaded: forget what transactions that the log has committed make superfluous.");

static PyObject *
packed_settle(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    PackedRows *self = (PackedRows *)object;
    int some = 0;
    for (uint32_t at = 1; at < self->owners.used && some == 0; at++)
        if (self->owners.all[at].object != NULL)
            some = is_committed(self->owners.all[at].object);
    if (some < 0)
        return NULL;
    for (uint32_t at = 0; some && at < self->used; at++)
        if (self->entries[at].key != NULL && settle_entry(self, self->entries + at) < 0)
            return NULL;
    Keeper *keepers[] = {&self->buffers, &self->owners};
    for (int at = 0; at < 2; at++) {
        Keeper *keeper = keepers[at];
        if (keeper->last != 0 && keeper->all[keeper->last].count == 0)
            Py_CLEAR(keeper->all[keeper->last].object);
        keeper->last = 0;
    }
    self->is_loaded = 1;
    if (self->alive == 0)
        empty_packed(self);
    return Py_NewRef(Py_None);
}

static PyObject *
packed_places(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(((PackedRows *)object)->used);
}

static Py_ssize_t
packed_length(PyObject *object)
{
    return (Py_ssize_t)((PackedRows *)object)->alive;
}

static PyMethodDef packed_methods[] = {
    {"keys", packed_keys, METH_VARARGS, keys_doc},
    {"look", packed_look, METH_O, look_doc},
    {"owner", packed_owner, METH_O, owner_doc},
    {"records", packed_records, METH_VARARGS, records_doc},
    {"settle", packed_settle, METH_NOARGS, settle_doc},
    {"take", packed_take, METH_O, take_doc_of_rows},
    {"undo", packed_undo, METH_VARARGS, undo_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef packed_getset[] = {
    {"places", packed_places, NULL, "How many there were at the start, and where they are counted.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot packed_slots[] = {
    {Py_tp_doc, "PackedRows(rows, committed)\n--\n\nRows as a start has found them, by key."},
    {Py_tp_new, (void *)packed_new},
    {Py_tp_dealloc, (void *)packed_dealloc},
    {Py_tp_methods, packed_methods},
    {Py_tp_getset, packed_getset},
    {Py_sq_length, (void *)packed_length},
    {0, NULL},
};

static PyType_Spec packed_spec = {
    .name = "binlog_storage.ibb._speedups.PackedRows",
    .basicsize = sizeof(PackedRows),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = packed_slots,
};

/* The transaction of the last change, and its table, with what is written back when another one comes. A large one has
 * no nodes that are objects: places of its changes in the window. */
#if defined(__GNUC__)
#define PREFETCH(at) __builtin_prefetch(at)
#else
#define PREFETCH(at) (void)(at)
#endif

#define PACKED_FROM 16 /* changes, when the next one comes */

typedef struct {
    PyObject *window;    /* borrowed */
    PyObject *trx, *top; /* owned; NULL while there is none */
    uint64_t id;
    uint32_t top_no, no;
    Py_ssize_t more;
    PyObject *number, *rows; /* of the table; owned */
    PackedRows *packed;      /* its others, or NULL; owned */
    uint32_t table, in, owner;
    int is_large;
    uint32_t *places; /* there is room for all of the window; `more` are used if it is large */
} Current;

static int
get_number(PyObject *owner, PyObject *name, Py_ssize_t *number)
{
    PyObject *found = PyObject_GetAttr(owner, name);
    if (found == NULL)
        return -1;
    *number = PyLong_AsSsize_t(found);
    Py_DECREF(found);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

static int
set_number(PyObject *owner, PyObject *name, Py_ssize_t number)
{
    PyObject *made = PyLong_FromSsize_t(number);
    if (made == NULL)
        return -1;
    int failed = PyObject_SetAttr(owner, name, made);
    Py_DECREF(made);
    return failed;
}

/* Put nodes on a chain that stay in their buffer, the oldest first: see `rows.Trx.pack`. */
static int
pack_chain(PyObject *trx, PyObject *body, const uint32_t *places, Py_ssize_t count)
{
    PyObject *made = PyObject_CallMethod(trx, "pack", "Oy#", body, (const char *)places, count * PLACE_SIZE);
    Py_XDECREF(made);
    return made == NULL ? -1 : 0;
}

/* Write back what the transaction has become, and let go of everything. */
static int
leave(Current *now)
{
    int failed = 0;
    if (now->more > 0) {
        PyObject *type, *value, *trace;
        Py_ssize_t count;
        PyErr_Fetch(&type, &value, &trace); /* of the change that is not made */
        failed = set_number(now->trx, name_no, now->no) < 0;
        if (failed)
            ;
        else if (now->is_large)
            failed = pack_chain(now->trx, now->window, now->places, now->more) < 0;
        else
            failed = get_number(now->trx, name_count, &count) < 0 || PyObject_SetAttr(now->trx, name_top, now->top) < 0
                || set_number(now->trx, name_count, count + now->more) < 0;
        if (type != NULL)
            PyErr_Restore(type, value, trace);
    }
    Py_CLEAR(now->trx);
    Py_CLEAR(now->top);
    Py_CLEAR(now->number);
    Py_CLEAR(now->rows);
    Py_CLEAR(now->packed);
    now->more = 0;
    return failed ? -1 : 0;
}

/* The packed rows of a table, which has some then if `makes`. 0 if all is well; NULL if there are none. */
static int
packed_of(PyObject *place, int makes, PackedRows **packed)
{
    PyObject *found = PyObject_GetAttr(place, name_packed);
    if (found == Py_None && makes) {
        Py_DECREF(found);
        found = PyObject_CallMethod(place, "pack", NULL);
    }
    *packed = NULL;
    if (found == NULL)
        return -1;
    if (found == Py_None) {
        Py_DECREF(found);
        return 0;
    }
    if (Py_TYPE(found) != packed_type) {
        PyErr_SetString(PyExc_TypeError, "no packed rows");
        Py_DECREF(found);
        return -1;
    }
    *packed = (PackedRows *)found;
    return make_ready_to_pack(*packed);
}

/* Go on with another transaction, or table. 1 if both are known, 0 if not, -1 with an error. */
static int
enter(Current *now, uint64_t id, uint32_t table, PyObject *unfinished, PyObject *tables)
{
    if (leave(now) < 0)
        return -1;
    int result = -1;
    PyObject *place, *changed = NULL, *key = PyLong_FromUnsignedLongLong(id);
    Py_ssize_t number;
    if (key == NULL || (now->number = PyLong_FromUnsignedLong(table)) == NULL)
        goto done;
    PyObject *trx = PyDict_GetItemWithError(unfinished, key);
    if (trx == NULL) {
        result = PyErr_Occurred() ? -1 : 0;
        goto done;
    }
    place = PyDict_GetItemWithError(tables, now->number);
    if (place == NULL) {
        result = PyErr_Occurred() ? -1 : 0;
        goto done;
    }
    now->trx = Py_NewRef(trx);
    if ((changed = PyObject_GetAttr(trx, name_tables)) == NULL)
        goto done;
    int known = PySet_Contains(changed, now->number);
    if (known <= 0) {
        result = known;
        goto done;
    }
    if ((now->rows = PyObject_GetAttr(place, name_rows)) == NULL)
        goto done;
    if (!PyDict_Check(now->rows)) {
        PyErr_SetString(PyExc_TypeError, "no dict of rows");
        goto done;
    }
    if (get_number(trx, name_count, &number) < 0)
        goto done;
    now->is_large = number >= PACKED_FROM;
    if (packed_of(place, now->is_large, &now->packed) < 0)
        goto done;
    if (now->is_large
        && ((now->in = index_of(&now->packed->buffers, now->window)) == 0
            || (now->owner = index_of(&now->packed->owners, trx)) == 0))
        goto done;
    if (get_number(trx, name_no, &number) < 0)
        goto done;
    now->no = (uint32_t)number;
    if ((now->top = PyObject_GetAttr(trx, name_top)) == NULL)
        goto done;
    number = 0;
    if (now->top != Py_None && get_number(now->top, name_no, &number) < 0)
        goto done;
    now->top_no = (uint32_t)number;
    now->id = id;
    now->table = table;
    result = 1;

done:
    Py_XDECREF(key);
    Py_XDECREF(changed);
    return result;
}

/* The version below a change, as `rows.version_below` gives it. A new reference. */
static PyObject *
version_below(Current *now, PyObject *last, PyObject *row, PyObject *before, PyObject *committed)
{
    if (row == before) /* it is as the log has it */
        return Py_NewRef(last);
    if (last != Py_None && ((Version *)last)->trx == now->trx) {
        PyObject *prev = ((Version *)last)->prev;
        return new_version(before, now->trx, prev == NULL ? Py_None : prev);
    }
    return before == Py_None ? Py_NewRef(Py_None) : new_version(before, committed, Py_None);
}

/* A row's newest version, which is among the objects then, or None. A new reference. */
static PyObject *
taken(Current *now, PyObject *key)
{
    PyObject *found;
    if (now->packed != NULL)
        found = packed_take((PyObject *)now->packed, key);
    else {
        found = PyDict_GetItemWithError(now->rows, key);
        found = found != NULL ? Py_NewRef(found) : PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    if (found != NULL && found != Py_None && Py_TYPE(found) != version_type) {
        PyErr_SetString(PyExc_TypeError, "no version of a row");
        Py_CLEAR(found);
    }
    return found;
}

/* One change, whose `head` is followed by key and rows, at that place of the window. 1 if it was made, 0 if it is not a
 * plain one, -1 with an error. */
static int
make_change(Current *now, const unsigned char *head, uint32_t at, PyObject *committed)
{
    uint32_t no = load_u32(head + 9), below = load_u32(head + 13), key_size = load_u32(head + 21);
    uint32_t before_size = load_u32(head + 25), after_size = load_u32(head + 29);
    const unsigned char *before = head + CHANGE_HEAD + key_size;
    const unsigned char *after = before + (before_size == NO_ROW ? 0 : before_size);
    PyObject *row = NULL, *before_row = NULL, *after_row = NULL, *node = NULL, *prev = NULL, *version = NULL;
    PyObject *key = NULL, *last = NULL;
    int result = -1;

    if (below != now->top_no || no <= now->no)
        return 0;
    int is_object = !now->is_large;
    if (!is_object && PyDict_Size(now->rows) > 0) {
        if ((key = PyBytes_FromStringAndSize((const char *)head + CHANGE_HEAD, (Py_ssize_t)key_size)) == NULL)
            return -1;
        is_object = PyDict_GetItemWithError(now->rows, key) != NULL;
        if (!is_object && PyErr_Occurred())
            goto done;
    }
    if (is_object) {
        if (key == NULL
            && (key = PyBytes_FromStringAndSize((const char *)head + CHANGE_HEAD, (Py_ssize_t)key_size)) == NULL)
            return -1;
        if ((last = taken(now, key)) == NULL)
            goto done;
        if ((row = last == Py_None ? Py_NewRef(Py_None) : Py_XNewRef(((Version *)last)->row)) == NULL)
            goto done;
        before_row = is_row(row, before, before_size) ? Py_NewRef(row) : row_at(before, before_size);
        if (before_row == NULL || (after_row = row_at(after, after_size)) == NULL)
            goto done;
        if (!now->is_large && (node = new_node(no, now->top, now->table, key, before_row)) == NULL)
            goto done;
        if ((prev = version_below(now, last, row, before_row, committed)) == NULL)
            goto done;
        version = new_version(after_row, now->trx, prev);
        if (version == NULL || PyDict_SetItem(now->rows, key, version) < 0)
            goto done;
    } else if (pack_change(now->packed, now->in, now->owner, head) < 0)
        goto done;
    if (now->is_large)
        now->places[now->more] = at;
    else {
        PyObject *below_it = now->top;
        now->top = node;
        node = below_it;
    }
    now->top_no = now->no = no;
    now->more++;
    result = 1;

done:
    Py_XDECREF(key);
    Py_XDECREF(last);
    Py_XDECREF(row);
    Py_XDECREF(before_row);
    Py_XDECREF(after_row);
    Py_XDECREF(node);
    Py_XDECREF(prev);
    Py_XDECREF(version);
    return result;
}

PyDoc_STRVAR(changes_doc,
"take_changes(window, at, stop, lsn, epoch, unfinished, tables, committed)\n--\n\n"
"See `take_changes.take_changes_plainly`. IndexError unless the places lie in the window.");

static PyObject *
take_changes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *window, *unfinished, *tables, *committed;
    Py_ssize_t at, stop;
    unsigned long long lsn;
    unsigned int epoch;

    if (!PyArg_ParseTuple(args, "O!nnKIO!O!O:take_changes", &PyBytes_Type, &window, &at, &stop, &lsn, &epoch,
                          &PyDict_Type, &unfinished, &PyDict_Type, &tables, &committed))
        return NULL;
    if (at < 0 || stop > PyBytes_Size(window)) {
        PyErr_SetString(PyExc_IndexError, "a place outside of the window");
        return NULL;
    }
    const unsigned char *data = (const unsigned char *)PyBytes_AsString(window);
    int has_instruction = HAS_CRC_INSTRUCTION;
    Py_ssize_t count = 0;
    Py_ssize_t most = stop > at ? (stop - at) / (MTR_HEAD + TABLES_HEAD + CHANGE_HEAD + CRC_SIZE) : 0;
    Current now = {.window = window};
    if ((now.places = PyMem_Malloc((size_t)(most + 1) * sizeof(*now.places))) == NULL)
        return PyErr_NoMemory();
    int made = 1;
    while (stop - at >= MTR_HEAD + TABLES_HEAD + CHANGE_HEAD + CRC_SIZE && at <= (Py_ssize_t)(UINT32_MAX / 2)) {
        const unsigned char *mtr = data + at, *change = mtr + MTR_HEAD + TABLES_HEAD;
        uint64_t size = load_u32(mtr + 16);
        if (memcmp(mtr, MTR_MAGIC, 4) != 0 || load_u32(mtr + 4) != epoch || load_u64(mtr + 8) != lsn
            || size > (uint64_t)(stop - at) || mtr[MTR_HEAD] != KIND_TABLES || change[0] != KIND_CHANGE)
            break;
        uint64_t of_tables = load_u32(mtr + MTR_HEAD + 1);
        uint32_t before_size = load_u32(change + 25), after_size = load_u32(change + 29);
        if (size != MTR_HEAD + TABLES_HEAD + of_tables + CRC_SIZE
            || of_tables != CHANGE_HEAD + (uint64_t)load_u32(change + 21) + (before_size == NO_ROW ? 0 : before_size)
                + (after_size == NO_ROW ? 0 : after_size))
            break;
        size_t checked = (size_t)size - CRC_SIZE;
        if ((has_instruction ? crc32c_by_instruction(mtr, checked) : crc32c_by_tables(mtr, checked))
            != load_u32(mtr + checked))
            break;
        uint64_t id = load_u64(change + 1);
        uint32_t table = load_u32(change + 17);
        if (now.trx == NULL || now.id != id || now.table != table) {
            if ((made = enter(&now, id, table, unfinished, tables)) <= 0)
                break;
        }
        if ((made = make_change(&now, change, (uint32_t)(change - data), committed)) <= 0)
            break;
        at += (Py_ssize_t)size;
        lsn += size;
        count++;
    }
    if (leave(&now) < 0)
        made = -1;
    PyMem_Free(now.places);
    return made < 0 ? NULL : Py_BuildValue("nn", at, count);
}

/* The table of the last record of a snapshot: mostly the next one is in it, too. */
typedef struct {
    PyObject *tables, *table_type; /* borrowed */
    PyObject *number;              /* owned; NULL while there is none, as the next one */
    PackedRows *packed;
    uint32_t table;
} Place;

static void
leave_place(Place *place)
{
    Py_CLEAR(place->number);
    Py_CLEAR(place->packed);
}

/* Go to a table, which is made if it is not there. 1 if it is another one than before, -1 with an error. */
static int
go_to(Place *place, uint32_t table)
{
    if (place->packed != NULL && place->table == table)
        return 0;
    leave_place(place);
    if ((place->number = PyLong_FromUnsignedLong(table)) == NULL)
        return -1;
    PyObject *found = PyDict_GetItemWithError(place->tables, place->number);
    if (found == NULL && PyErr_Occurred())
        return -1;
    found = found == NULL ? PyObject_CallFunctionObjArgs(place->table_type, NULL) : Py_NewRef(found);
    if (found == NULL)
        return -1;
    place->table = table;
    int failed = PyDict_SetItem(place->tables, place->number, found) < 0 || packed_of(found, 1, &place->packed) < 0;
    Py_DECREF(found);
    if (failed)
        leave_place(place);
    return failed ? -1 : 1;
}

static void
no_record(void)
{
    PyErr_SetString(PyExc_ValueError, "a record ends outside its block");
}

/* Rows that come one behind the other, in one table: their places in memory are asked for before the first is packed. */
#define ROWS_AT_ONCE 16

typedef struct {
    const unsigned char *heads[ROWS_AT_ONCE];
    uint32_t hashes[ROWS_AT_ONCE];
    int count;
} SomeRows;

static int
pack_some(SomeRows *some, PackedRows *packed, PyObject *body)
{
    uint32_t in = some->count == 0 ? 0 : index_of(&packed->buffers, body);
    for (int at = 0; at < some->count; at++) {
        const unsigned char *head = some->heads[at], *key = head + SNAPSHOT_ROW_HEAD;
        uint32_t key_size = load_u32(head + 5);
        if (in == 0 || pack_row(packed, in, some->hashes[at], key, key_size, key + key_size, load_u32(head + 9)) < 0)
            return -1;
    }
    some->count = 0;
    return 0;
}

PyDoc_STRVAR(rows_doc,
"take_rows(body, at, tables, table_type)\n--\n\n"
"See `take_records.take_rows_plainly`: but the rows stay packed. IndexError unless `at` lies in or behind the body.");

static PyObject *
take_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *body, *tables;
    PyTypeObject *table_type;
    Py_ssize_t at, count = 0;

    if (!PyArg_ParseTuple(args, "O!nOO!:take_rows", &PyBytes_Type, &body, &at, &tables, &PyType_Type, &table_type))
        return NULL;
    const unsigned char *data = (const unsigned char *)PyBytes_AsString(body);
    Py_ssize_t body_size = PyBytes_Size(body);
    Place place = {.tables = tables, .table_type = (PyObject *)table_type};
    SomeRows some = {.count = 0};
    int failed = at < 0;
    if (failed)
        PyErr_SetString(PyExc_IndexError, "a place outside of the body");
    else if (tables != Py_None && !PyDict_Check(tables)) {
        PyErr_SetString(PyExc_TypeError, "no dict of tables");
        failed = 1;
    }
    while (!failed && at < body_size && data[at] == 'R') {
        uint64_t key_size = 0, size = 0, left = (uint64_t)(body_size - at);
        const unsigned char *head = data + at;
        if (left >= SNAPSHOT_ROW_HEAD) {
            key_size = load_u32(head + 5);
            size = load_u32(head + 9);
        }
        if (left < SNAPSHOT_ROW_HEAD + key_size + size || size == NO_ROW) {
            no_record();
            failed = 1;
            break;
        }
        at += (Py_ssize_t)(SNAPSHOT_ROW_HEAD + key_size + size);
        count++;
        if (tables == Py_None)
            continue;
        if (some.count == ROWS_AT_ONCE || (some.count > 0 && place.table != load_u32(head + 1)))
            if ((failed = pack_some(&some, place.packed, body) < 0))
                break;
        if ((failed = go_to(&place, load_u32(head + 1)) < 0))
            break;
        uint32_t hash = hash_of(head + SNAPSHOT_ROW_HEAD, (size_t)key_size);
        if (place.packed->slots != NULL)
            PREFETCH(place.packed->slots + (hash & place.packed->mask));
        some.heads[some.count] = head;
        some.hashes[some.count++] = hash;
    }
    failed = failed || pack_some(&some, place.packed, body) < 0;
    leave_place(&place);
    return failed ? NULL : Py_BuildValue("nn", at, count);
}

PyDoc_STRVAR(find_doc,
"find_nodes(body, at)\n--\n\n"
"See `take_records.find_nodes_plainly`. IndexError unless `at` lies in or behind the body.");

static PyObject *
find_nodes(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer body;
    Py_ssize_t at, count = 0;
    PyObject *places = NULL;

    if (!PyArg_ParseTuple(args, "y*n:find_nodes", &body, &at))
        return NULL;
    const unsigned char *data = body.buf;
    uint32_t *found = NULL;
    if (at < 0 || body.len > (Py_ssize_t)UINT32_MAX) {
        PyErr_SetString(PyExc_IndexError, "a place outside of the body");
        goto done;
    }
    size_t most = at < body.len ? (size_t)(body.len - at) / SNAPSHOT_NODE_HEAD : 0;
    if ((found = PyMem_Malloc((most + 1) * sizeof(*found))) == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    while (at < body.len && data[at] == 'N') {
        uint64_t size = SNAPSHOT_NODE_HEAD, left = (uint64_t)(body.len - at);
        if (left >= size) {
            uint32_t before_size = load_u32(data + at + 13);
            size += (uint64_t)load_u32(data + at + 9) + (before_size == NO_ROW ? 0 : before_size);
        }
        if (left < size) {
            no_record();
            goto done;
        }
        found[count++] = (uint32_t)at;
        at += (Py_ssize_t)size;
    }
    places = PyBytes_FromStringAndSize((const char *)found, count * PLACE_SIZE);

done:
    PyMem_Free(found);
    PyBuffer_Release(&body);
    return places == NULL ? NULL : Py_BuildValue("nN", at, places);
}

PyDoc_STRVAR(nodes_doc,
"take_nodes(body, places, trx, tables, table_type)\n--\n\n"
"See `take_records.take_nodes_plainly`: but nodes and rows stay packed. IndexError unless all places are of nodes in the\n"
"body.");

static PyObject *
take_nodes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *body, *trx, *tables;
    PyTypeObject *table_type;
    const char *places;
    Py_ssize_t size_of_places;

    if (!PyArg_ParseTuple(args, "O!y#OO!O!:take_nodes", &PyBytes_Type, &body, &places, &size_of_places, &trx, &PyDict_Type,
                          &tables, &PyType_Type, &table_type))
        return NULL;
    const unsigned char *data = (const unsigned char *)PyBytes_AsString(body);
    uint64_t body_size = (uint64_t)PyBytes_Size(body);
    Place place = {.tables = tables, .table_type = (PyObject *)table_type};
    Py_ssize_t left = size_of_places / PLACE_SIZE, count = 0;
    uint32_t *oldest_first = PyMem_Malloc((size_t)(left + 1) * sizeof(*oldest_first));
    PyObject *changed = PyObject_GetAttr(trx, name_tables);
    int failed = changed == NULL || oldest_first == NULL;
    if (oldest_first == NULL)
        PyErr_NoMemory();
    while (!failed && left > 0) {
        uint32_t at; /* perhaps not aligned */
        memcpy(&at, places + --left * PLACE_SIZE, sizeof(at));
        const unsigned char *head = data + at;
        uint64_t size = SNAPSHOT_NODE_HEAD;
        uint32_t key_size = 0, before_size = 0;
        if (size + at <= body_size) {
            key_size = load_u32(head + 9);
            before_size = load_u32(head + 13);
            size += (uint64_t)key_size + (before_size == NO_ROW ? 0 : before_size);
        }
        if (size + at > body_size || *head != 'N') {
            PyErr_SetString(PyExc_IndexError, "a place outside of the body");
            failed = 1;
            break;
        }
        int moved = go_to(&place, load_u32(head + 5));
        if ((failed = moved < 0 || (moved > 0 && PySet_Add(changed, place.number) < 0)))
            break;
        uint32_t in = index_of(&place.packed->buffers, body), owner = in == 0 ? 0 : index_of(&place.packed->owners, trx);
        const unsigned char *key = head + SNAPSHOT_NODE_HEAD;
        failed = owner == 0 || pack_node(place.packed, in, owner, key, key_size, key + key_size, before_size) < 0;
        oldest_first[count++] = at;
    }
    if (!failed && count > 0)
        failed = pack_chain(trx, body, oldest_first, count) < 0;
    leave_place(&place);
    PyMem_Free(oldest_first);
    Py_XDECREF(changed);
    return failed ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(unpack_doc,
"unpack_nodes(body, places, first, end, below)\n--\n\n"
"Make objects of nodes at these places of a body, records of a snapshot or changes of the log, the oldest first.\n"
"`below` is what the first one stands on. Returns the last one. IndexError unless they lie in the body.");

static PyObject *
unpack_nodes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *top;
    const unsigned char *data;
    const char *places;
    Py_ssize_t body_size, size_of_places, first, end;

    if (!PyArg_ParseTuple(args, "y#y#nnO:unpack_nodes", &data, &body_size, &places, &size_of_places, &first, &end, &top))
        return NULL;
    if (first < 0 || end > size_of_places / PLACE_SIZE) {
        PyErr_SetString(PyExc_IndexError, "a place outside of the places");
        return NULL;
    }
    Py_INCREF(top);
    for (; first < end; first++) {
        uint32_t at;
        memcpy(&at, places + first * PLACE_SIZE, sizeof(at));
        const unsigned char *head = data + at, *key = NULL;
        uint64_t left = at < body_size ? (uint64_t)(body_size - at) : 0, size = 0;
        uint32_t no = 0, table = 0, key_size = 0, before_size = 0;
        if (left >= SNAPSHOT_NODE_HEAD && *head == 'N') {
            no = load_u32(head + 1);
            table = load_u32(head + 5);
            key_size = load_u32(head + 9);
            before_size = load_u32(head + 13);
            size = SNAPSHOT_NODE_HEAD;
        } else if (left >= CHANGE_HEAD && *head == KIND_CHANGE) {
            no = load_u32(head + 9);
            table = load_u32(head + 17);
            key_size = load_u32(head + 21);
            before_size = load_u32(head + 25);
            size = CHANGE_HEAD;
        }
        key = head + size;
        if (size == 0 || left < size + key_size + (before_size == NO_ROW ? 0 : (uint64_t)before_size)) {
            PyErr_SetString(PyExc_IndexError, "a place that is of no node");
            Py_DECREF(top);
            return NULL;
        }
        PyObject *node = NULL;
        PyObject *key_object = PyBytes_FromStringAndSize((const char *)key, (Py_ssize_t)key_size);
        PyObject *before = row_at(key + key_size, before_size);
        if (key_object != NULL && before != NULL)
            node = new_node(no, top, table, key_object, before);
        Py_XDECREF(key_object);
        Py_XDECREF(before);
        Py_DECREF(top);
        if ((top = node) == NULL)
            return NULL;
    }
    return top;
}

static PyMethodDef methods[] = {
    {"crc32c", crc32c, METH_VARARGS, crc_doc},
    {"entries_encoded", entries_encoded, METH_O, entries_doc},
    {"fill_pages", fill_pages, METH_VARARGS, fill_pages_doc},
    {"fill_run", fill_run, METH_VARARGS, fill_run_doc},
    {"fill_record", fill_record, METH_VARARGS, fill_record_doc},
    {"find_nodes", find_nodes, METH_VARARGS, find_doc},
    {"next_keys", next_keys, METH_VARARGS, next_keys_doc},
    {"plain_commit", plain_commit, METH_VARARGS, plain_commit_doc},
    {"sound_run", sound_run, METH_O, sound_doc},
    {"take_changes", take_changes, METH_VARARGS, changes_doc},
    {"take_nodes", take_nodes, METH_VARARGS, nodes_doc},
    {"take_plain_commits", take_plain_commits, METH_VARARGS, take_doc},
    {"take_rows", take_rows, METH_VARARGS, rows_doc},
    {"take_writes", take_writes, METH_VARARGS, writes_doc},
    {"unpack_nodes", unpack_nodes, METH_VARARGS, unpack_doc},
    {NULL, NULL, 0, NULL},
};

static int
make_ready(PyObject *module)
{
    make_crc_tables();
    if (HAS_CRC_INSTRUCTION)
        make_lane_tables();
    if (!make_names() || make_secret() < 0)
        return -1;
    struct {
        const char *name;
        PyTypeObject **type;
        PyType_Spec *spec;
    } types[] = {
        {"Node", &node_type, &node_spec},
        {"PackedRows", &packed_type, &packed_spec},
        {"Version", &version_type, &version_spec},
    };
    for (size_t at = 0; at < sizeof(types) / sizeof(types[0]); at++) {
        if (*types[at].type == NULL && (*types[at].type = (PyTypeObject *)PyType_FromSpec(types[at].spec)) == NULL)
            return -1;
        if (PyModule_AddObjectRef(module, types[at].name, (PyObject *)*types[at].type) < 0)
            return -1;
    }
    return refuse_if_unwanted(module);
}

OPTIONAL_MODULE(PyInit__speedups, "binlog_storage.ibb._speedups",
                "The loops of `batch_reader`, `fill_page`, `gtid_state`, `take_changes` and `take_records` in C.", make_ready)
