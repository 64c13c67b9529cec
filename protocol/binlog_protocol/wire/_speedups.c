/* The loops of the wire in C: the framing of the dump stream, the recognition of changes, and plain parameters. Optional:
 * `event_frames.py`, `plain_changes.py` and `plain_parameters.py` have the plain twin of every function here, and their tests
 * hold the two equal byte by byte.
 *
 * Nothing here raises for what events hold. What is impossible, or rare enough to be left to the twin, is answered
 * None: the twin then frames it, or says what is wrong with it.
 */

#include "../speedups.h"

/* The common header of an event: type at 4, length at 9, 19 bytes in all. */
#define TYPE_AT 4
#define LENGTH_AT 9
#define LENGTH_END 13
#define HEADER_SIZE 19
#define FORMAT_DESCRIPTION 15

/* In front of an event: length of the payload (3), sequence number (1), and the status, which is part of the payload:
 * one byte, or three with semi-sync. */
#define SEQ_AT 3
#define STATUS_AT 4
#define STATUS_SIZE_MAX 3
#define PAYLOAD_MAX 0xFFFFFF

typedef struct {
    const unsigned char *data;
    Py_ssize_t size;
} Payload;

typedef struct {
    const char *bytes;
    Py_ssize_t size;
} Status;

typedef struct {
    Py_ssize_t bytes;
    Py_ssize_t packets;
} Measure;

/* How much all packets take; 0 if an event has no possible length, or one packet is not enough for it. */
static int
measure(const Payload *payloads, Py_ssize_t count, int dropped_type, Status status, Measure *found)
{
    Py_ssize_t prefix_size = STATUS_AT + status.size, whole_event_max = PAYLOAD_MAX - 1 - status.size;
    found->bytes = found->packets = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const unsigned char *at = payloads[i].data;
        Py_ssize_t left = payloads[i].size;
        while (left > 0) {
            if (left < LENGTH_END)
                return 0;
            uint32_t length = load_u32(at + LENGTH_AT);
            if (length < HEADER_SIZE || (Py_ssize_t)length > whole_event_max || (Py_ssize_t)length > left)
                return 0;
            if (at[TYPE_AT] != dropped_type) {
                if (found->bytes > PY_SSIZE_T_MAX - (Py_ssize_t)length - prefix_size)
                    return 0;
                found->bytes += (Py_ssize_t)length + prefix_size;
                found->packets++;
            }
            at += length;
            left -= (Py_ssize_t)length;
        }
    }
    return 1;
}

/* The packets, all numbered 0, to `out`, and where their sequence numbers lie to `offsets`; both as measured. */
static void
fill(const Payload *payloads, Py_ssize_t count, int dropped_type, Status status, unsigned char *out,
     uint64_t *offsets)
{
    Py_ssize_t prefix_size = STATUS_AT + status.size;
    unsigned char *begin = out;
    for (Py_ssize_t i = 0; i < count; i++) {
        const unsigned char *at = payloads[i].data, *end = at + payloads[i].size;
        while (at < end) {
            uint32_t length = load_u32(at + LENGTH_AT);
            if (at[TYPE_AT] != dropped_type) {
                uint32_t size = length + (uint32_t)status.size;
                out[0] = (unsigned char)size;
                out[1] = (unsigned char)(size >> 8);
                out[2] = (unsigned char)(size >> 16);
                out[SEQ_AT] = 0;
                memcpy(out + STATUS_AT, status.bytes, (size_t)status.size);
                memcpy(out + prefix_size, at, length);
                *offsets++ = (uint64_t)(out - begin) + SEQ_AT;
                out += prefix_size + length;
            }
            at += length;
        }
    }
}

PyDoc_STRVAR(frame_doc,
"frame(payloads, dropped_type, status, markers)\n--\n\n"
"(packets, all numbered 0, offsets of their sequence numbers as native 64-bit numbers), or None: ask the twin.");

static PyObject *
frame(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *given, *kept, *result = NULL, *data = NULL, *offsets = NULL;
    Payload *payloads = NULL;
    int dropped_type, markers = 1;
    Status status = {"", 1}; /* the byte 0 */

    if (!PyArg_ParseTuple(args, "Oi|y#p:frame", &given, &dropped_type, &status.bytes, &status.size, &markers))
        return NULL;
    if (status.size < 1 || status.size > STATUS_SIZE_MAX) {
        PyErr_SetString(PyExc_ValueError, "no such status");
        return NULL;
    }
    /* A tuple of its own: whoever else has the list may change it meanwhile. */
    kept = PySequence_Tuple(given);
    if (kept == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_Size(kept), total = 0;
    payloads = PyMem_Calloc(count ? (size_t)count : 1, sizeof(Payload));
    if (payloads == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        char *bytes;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(kept, i), &bytes, &payloads[i].size) < 0)
            goto done;
        payloads[i].data = (const unsigned char *)bytes;
        if (!markers && payloads[i].size > TYPE_AT && payloads[i].data[TYPE_AT] == FORMAT_DESCRIPTION)
            payloads[i].size = 0; /* one that is left out has no events */
        total = total < UNLOCK_BYTES ? total + payloads[i].size : total;
    }

    PyThreadState *unlocked = total >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    Measure size;
    int sound = measure(payloads, count, dropped_type, status, &size);
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    if (!sound || size.packets > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(uint64_t)) {
        result = Py_None;
        Py_INCREF(result);
        goto done;
    }

    data = PyByteArray_FromStringAndSize(NULL, size.bytes);
    offsets = PyBytes_FromStringAndSize(NULL, size.packets * (Py_ssize_t)sizeof(uint64_t));
    if (data == NULL || offsets == NULL)
        goto done;
    /* Nobody else knows either of them yet. The bytes of a bytes object are aligned for any number. */
    unsigned char *out = (unsigned char *)PyByteArray_AsString(data);
    uint64_t *places = (uint64_t *)(void *)PyBytes_AsString(offsets);
    unlocked = total >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    fill(payloads, count, dropped_type, status, out, places);
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    result = PyTuple_Pack(2, data, offsets);

done:
    PyMem_Free(payloads);
    Py_XDECREF(data);
    Py_XDECREF(offsets);
    Py_DECREF(kept);
    return result;
}

PyDoc_STRVAR(number_doc,
"number(data, offsets, seq)\n--\n\n"
"Write sequence numbers from `seq` on, modulo 256, to `data` at `offsets` (native 64-bit numbers). IndexError for one\n"
"that lies outside.");

static PyObject *
number(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data_given, *offsets_given;
    Py_buffer data, offsets;
    unsigned char seq;
    int inside = 1;

    if (!PyArg_ParseTuple(args, "OOb:number", &data_given, &offsets_given, &seq))
        return NULL;
    if (PyObject_GetBuffer(data_given, &data, PyBUF_WRITABLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(offsets_given, &offsets, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    unsigned char *bytes = data.buf;
    const unsigned char *places = offsets.buf;
    Py_ssize_t count = offsets.len / (Py_ssize_t)sizeof(uint64_t);
    for (Py_ssize_t i = 0; i < count; i++) {
        uint64_t place;
        memcpy(&place, places + i * (Py_ssize_t)sizeof(place), sizeof(place)); /* perhaps not aligned */
        if (place >= (uint64_t)data.len) {
            inside = 0;
            break;
        }
        bytes[place] = seq++;
    }
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    if (!inside) {
        PyErr_SetString(PyExc_IndexError, "an offset lies outside of the packets");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Words that are compared without their case are small letters here. */
#define RETURNING "returning"
#define RETURNING_SIZE 9
#define TAIL_BYTES 16384
#define HEADER_BYTES 4
#define STATEMENT_AT 5
#define WORD_SIZE 7
#define COM_QUERY 3

static int
has_returning(const unsigned char *at, const unsigned char *end)
{
    for (; end - at >= RETURNING_SIZE; at++) {
        int same = 0;
        while (same < RETURNING_SIZE && (at[same] | 0x20) == RETURNING[same])
            same++;
        if (same == RETURNING_SIZE)
            return 1;
    }
    return 0;
}

static int
begins_a_change(const unsigned char *at)
{
    static const char words[6][WORD_SIZE + 1] = {"INSERT ", "UPDATE ", "DELETE ", "insert ", "update ", "delete "};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (memcmp(at, words[i], WORD_SIZE) == 0)
            return 1;
    return 0;
}

PyDoc_STRVAR(is_plain_change_doc,
"is_plain_change(data)\n--\n\n"
"Whether bytes are one packet with a change that needs no parser; see `plain_changes.py`.");

static PyObject *
is_plain_change(PyObject *Py_UNUSED(module), PyObject *given)
{
    Py_buffer data;
    int found = 0;

    if (PyObject_GetBuffer(given, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    const unsigned char *at = data.buf;
    size_t size = (size_t)data.len;
    if (size >= STATEMENT_AT + WORD_SIZE && begins_a_change(at + STATEMENT_AT) && at[SEQ_AT] == 0 &&
        at[STATEMENT_AT - 1] == COM_QUERY) {
        size_t payload = (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16;
        const unsigned char *text = at + STATEMENT_AT, *end = at + size;
        size_t rest = size - STATEMENT_AT;
        found = payload == size - HEADER_BYTES && payload < PAYLOAD_MAX && end[-1] > ' ' &&
                memchr(text, ';', rest) == NULL && memchr(text, '@', rest) == NULL &&
                memchr(text, '*', rest) == NULL &&
                !has_returning(rest > TAIL_BYTES ? end - TAIL_BYTES : text, end);
    }
    PyBuffer_Release(&data);
    return PyBool_FromLong(found);
}

/* Parameters: see binary_rows.py. */
#define UNSIGNED 0x80
#define LENGTH_MAX 250
#define DIGITS_MAX 20 /* with a sign */
#define TYPE_VARCHAR 15
#define TYPE_VAR_STRING 253
#define TYPE_STRING 254

/* How many bytes an integer of that type has; 0 for what is none. */
static int
integer_size(unsigned char type)
{
    switch (type) {
    case 1: /* TINY */
        return 1;
    case 2: /* SHORT */
    case 13: /* YEAR */
        return 2;
    case 3: /* LONG */
    case 9: /* INT24 */
        return 4;
    case 8: /* LONGLONG */
        return 8;
    default:
        return 0;
    }
}

static unsigned char *
put_bytes(unsigned char *to, const void *from, size_t size)
{
    memcpy(to, from, size);
    return to + size;
}

static unsigned char *
put_digits(unsigned char *to, uint64_t magnitude, int is_negative)
{
    unsigned char digits[DIGITS_MAX];
    int count = 0;
    do {
        digits[count++] = (unsigned char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude > 0);
    if (is_negative)
        *to++ = '-';
    while (count > 0)
        *to++ = digits[--count];
    return to;
}

static unsigned char *
put_text(unsigned char *to, const unsigned char *text, size_t size)
{
    *to++ = '\'';
    for (size_t i = 0; i < size; i++) {
        unsigned char escaped = text[i];
        switch (text[i]) {
        case '\0':
            escaped = '0';
            break;
        case '\n':
            escaped = 'n';
            break;
        case '\r':
            escaped = 'r';
            break;
        case 0x1a:
            escaped = 'Z';
            break;
        case '\\':
        case '\'':
            break;
        default:
            *to++ = text[i];
            continue;
        }
        *to++ = '\\';
        *to++ = escaped;
    }
    *to++ = '\'';
    return to;
}

/* One value, of which the literal is put down; NULL with no error set for what is not plain. */
static PyObject *
take_value(const unsigned char *type, const unsigned char **from, const unsigned char *end, unsigned char **to)
{
    const unsigned char *at = *from;
    int size = integer_size(type[0]);
    if (size > 0) {
        if (end - at < size)
            return NULL;
        *from = at + size;
        uint64_t bits = size == 8 ? load_u64(at) : size == 4 ? load_u32(at) : size == 2 ? load_u16(at) : at[0];
        int is_negative = type[1] != UNSIGNED && bits >> (8 * size - 1);
        if (!is_negative) {
            *to = put_digits(*to, bits, 0);
            return PyLong_FromUnsignedLongLong(bits);
        }
        uint64_t magnitude = ~bits + 1;
        if (size < 8)
            magnitude &= ((uint64_t)1 << 8 * size) - 1;
        *to = put_digits(*to, magnitude, 1);
        return PyLong_FromLongLong((long long)(0 - magnitude));
    }
    if ((type[0] != TYPE_VARCHAR && type[0] != TYPE_VAR_STRING && type[0] != TYPE_STRING) || at >= end || *at > LENGTH_MAX)
        return NULL;
    Py_ssize_t length = *at++;
    if (end - at < length)
        return NULL;
    *from = at + length;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)at, length, "strict");
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    else if (text != NULL)
        *to = put_text(*to, at, (size_t)length);
    return text;
}

/* All values, and the text around them, in a buffer that is large enough. Whether they are plain; -1 with an error. */
static int
take_values(PyObject *pieces, const unsigned char *nulls, const unsigned char *types, const unsigned char *at,
            const unsigned char *end, PyObject *values, unsigned char **to)
{
    Py_ssize_t count = PyList_Size(values);
    for (Py_ssize_t i = 0; i <= count; i++) {
        PyObject *piece = PyList_GetItem(pieces, i); /* borrowed, and bytes */
        *to = put_bytes(*to, PyBytes_AsString(piece), (size_t)PyBytes_Size(piece));
        if (i == count)
            break;
        PyObject *value;
        if (nulls[i / 8] >> i % 8 & 1) {
            *to = put_bytes(*to, "NULL", 4);
            value = Py_NewRef(Py_None);
        } else if ((value = take_value(types + 2 * i, &at, end, to)) == NULL)
            return PyErr_Occurred() ? -1 : 0;
        PyList_SetItem(values, i, value);
    }
    return at == end;
}

PyDoc_STRVAR(take_plain_parameters_doc,
"take_plain_parameters(data, at, known, pieces)\n--\n\n"
"See `plain_parameters.take_plain_parameters_plainly`. TypeError unless `pieces` is a list of bytes, with one in it.");

static PyObject *
take_plain_parameters(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *data_given;
    Py_ssize_t size, at, room = 0;
    PyObject *known, *pieces, *values = NULL, *result = NULL;

    if (!PyArg_ParseTuple(args, "y#nO!O!:take_plain_parameters", &data_given, &size, &at, &PyBytes_Type, &known,
                          &PyList_Type, &pieces))
        return NULL;
    Py_ssize_t count = PyList_Size(pieces) - 1;
    for (Py_ssize_t i = 0; i <= count; i++) {
        PyObject *piece = PyList_GetItem(pieces, i);
        if (!PyBytes_Check(piece)) {
            PyErr_SetString(PyExc_TypeError, "a piece of a text is bytes");
            return NULL;
        }
        room += PyBytes_Size(piece);
    }
    if (count < 0 || at < 0) {
        PyErr_SetString(PyExc_TypeError, "no piece of a text, or no place");
        return NULL;
    }
    if (count == 0)
        return Py_BuildValue("y#[]O", "", (Py_ssize_t)0, PyList_GetItem(pieces, 0));
    const unsigned char *data = (const unsigned char *)data_given, *end = data + size;
    Py_ssize_t end_of_nulls = (count + 7) / 8;
    if (size <= at || end_of_nulls >= size - at)
        Py_RETURN_NONE;
    const unsigned char *nulls = data + at, *next = nulls + end_of_nulls + 1;
    PyObject *types = NULL;
    if (next[-1] == 1) {
        if (end - next < 2 * count)
            Py_RETURN_NONE;
        types = PyBytes_FromStringAndSize((const char *)next, 2 * count);
        next += 2 * count;
    } else if (PyBytes_Size(known) == 2 * count)
        types = Py_NewRef(known);
    else
        Py_RETURN_NONE;
    values = PyList_New(count);
    /* A byte of a text takes two at most; any other literal is no longer than DIGITS_MAX. */
    unsigned char *text = PyMem_Malloc((size_t)(room + 2 * size + count * DIGITS_MAX)), *to = text;
    if (types == NULL || values == NULL || text == NULL) {
        if (text == NULL)
            PyErr_NoMemory();
        goto done;
    }
    int is_plain = take_values(pieces, nulls, (const unsigned char *)PyBytes_AsString(types), next, end, values, &to);
    if (is_plain > 0)
        result = Py_BuildValue("OOy#", types, values, (const char *)text, (Py_ssize_t)(to - text));
    else if (is_plain == 0)
        result = Py_NewRef(Py_None);

done:
    PyMem_Free(text);
    Py_XDECREF(types);
    Py_XDECREF(values);
    return result;
}

static PyMethodDef methods[] = {
    {"frame", frame, METH_VARARGS, frame_doc},
    {"is_plain_change", is_plain_change, METH_O, is_plain_change_doc},
    {"number", number, METH_VARARGS, number_doc},
    {"take_plain_parameters", take_plain_parameters, METH_VARARGS, take_plain_parameters_doc},
    {NULL, NULL, 0, NULL},
};

OPTIONAL_MODULE(PyInit__speedups, "binlog_protocol.wire._speedups", "The loops of `event_frames`, `plain_changes` and `plain_parameters` in C.",
                refuse_if_unwanted)
