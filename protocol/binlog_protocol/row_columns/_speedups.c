/* Rows of row events as columns, in C: events of groups, which of them are alike, where rows and their values lie, the values of
 * the usual types. Optional: each has a twin of numpy's, which is named behind it and says what it does.
 *
 * Nothing here raises for what came. Each read is held to the bytes that there are; what no server logs is told by -1, and the
 * plain decoder then says what is wrong with it.
 */

#include "../speedups.h"

/* The header of an event: timestamp 0, type 4, server_id 5, length 9, end position 13, flags 17. */
#define TYPE_AT 4
#define LENGTH_AT 9
#define HEADER_SIZE 19
/* A table map and a row event: table id (6), flags (2); then a row event has the number of columns, and its bitmaps. */
#define ID_SIZE 6
#define WIDTH_AT (HEADER_SIZE + ID_SIZE + 2)

#define DAMAGED (-1)
#define SOUND 0
#define SOME_ARE_NONE 1

#define WORD_SIZE 8
#define WORD_BITS 64
#define MICROSECONDS 1000000

static inline int64_t
get(const void *numbers, Py_ssize_t i)
{
    int64_t value;
    memcpy(&value, (const char *)numbers + i * (Py_ssize_t)sizeof value, sizeof value);
    return value;
}

static inline void
put(void *numbers, Py_ssize_t i, int64_t value)
{
    memcpy((char *)numbers + i * (Py_ssize_t)sizeof value, &value, sizeof value);
}

static PyObject *
wrong_arrays(void)
{
    PyErr_SetString(PyExc_ValueError, "arrays that do not fit each other");
    return NULL;
}

/* --- events of groups (event_walk.py) --- */

/* Where what is found goes to; each has room for so many. */
typedef struct {
    unsigned char *types;
    void *begins, *ends, *groups, *numbers;
    Py_ssize_t room;
} Events;

/* How many events groups have that lie one behind the other and end at these places; DAMAGED if one does not split. They are
 * written if there is an `out`. */
static Py_ssize_t
walk(const unsigned char *data, Py_ssize_t size, const Py_buffer *ends, Events *out)
{
    Py_ssize_t count = 0, groups = ends->len / WORD_SIZE;
    int64_t at = 0;

    for (Py_ssize_t group = 0; group < groups; group++) {
        int64_t end = get(ends->buf, group);
        if (end < at || end > size)
            return DAMAGED;
        for (int64_t number = 0; at < end; number++) {
            if (end - at < HEADER_SIZE)
                return DAMAGED;
            int64_t length = load_u32(data + at + LENGTH_AT);
            if (length < HEADER_SIZE || length > end - at)
                return DAMAGED;
            if (out != NULL) {
                if (count == out->room)
                    return DAMAGED;
                out->types[count] = data[at + TYPE_AT];
                put(out->begins, count, at);
                put(out->ends, count, at + length);
                put(out->groups, count, group);
                put(out->numbers, count, number);
            }
            at += length;
            count++;
        }
    }
    return count;
}

PyDoc_STRVAR(count_events_doc,
"count_events(data, ends)\n--\n\n"
"How many events the groups have that end at these places; -1 if one does not split into events.");

static PyObject *
count_events(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, ends;

    if (!PyArg_ParseTuple(args, "y*y*:count_events", &data, &ends))
        return NULL;
    PyThreadState *unlocked = data.len >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    Py_ssize_t count = walk(data.buf, data.len, &ends, NULL);
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    return PyLong_FromSsize_t(count);
}

PyDoc_STRVAR(fill_events_doc,
"fill_events(data, ends, type, begin, end, group, number)\n--\n\n"
"See `event_walk.walk_events`; the arrays have room for as many as `count_events` says. False if that was wrong.");

static PyObject *
fill_events(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, ends, out[5];
    PyObject *result = NULL;

    if (!PyArg_ParseTuple(args, "y*y*w*w*w*w*w*:fill_events", &data, &ends, &out[0], &out[1], &out[2], &out[3], &out[4]))
        return NULL;
    Py_ssize_t room = out[0].len;
    int fits = 1;
    for (int i = 1; i < 5; i++)
        fits &= out[i].len / WORD_SIZE == room;
    if (fits) {
        Events events = {out[0].buf, out[1].buf, out[2].buf, out[3].buf, out[4].buf, room};
        PyThreadState *unlocked = data.len >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
        Py_ssize_t count = walk(data.buf, data.len, &ends, &events);
        if (unlocked != NULL)
            PyEval_RestoreThread(unlocked);
        result = PyBool_FromLong(count == room);
    } else
        wrong_arrays();
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    for (int i = 0; i < 5; i++)
        PyBuffer_Release(&out[i]);
    return result;
}

/* --- which events are like an earlier one (repeats.py) --- */

/* What an event is: the table comes from Python (`repeats.KINDS`). A row event has one bitmap of columns, or two. */
enum kind { ANY = 0, TABLE_MAP = 1, ROWS = 2, ROWS_TWICE = 3 };

/* More tables of one group than these are left to Python, and so is what does not find its place within a few steps. */
#define MAPS_MAX 64
#define STEPS_MAX 8
#define FIRSTS_MIN 64
#define FIRSTS_MAX 2048
#define WIDTH_ONE_BYTE_MAX 250
#define WIDTH_TWO_BYTES 0xFC

/* The first event of its like: a table map, or a row event and the first like of its map. */
typedef struct {
    Py_ssize_t event, map;
    uint64_t hash;
    int is_taken;
} First;

typedef struct {
    uint64_t id;
    Py_ssize_t event;
} Map;

typedef struct {
    const unsigned char *data, *types;
    Py_ssize_t size, count;
    const void *begins, *ends, *groups;
    unsigned char *looked_at;
    void *likes;
    First *firsts;
    size_t mask;
    Map maps[MAPS_MAX]; /* of the group at hand */
    int map_count;
} Likes;

#define NOBODY ((Py_ssize_t)-1)

static inline uint64_t
mixed(uint64_t hash, uint64_t with)
{
    hash = (hash ^ with) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

static uint64_t
hash_of(const unsigned char *at, Py_ssize_t size, uint64_t hash)
{
    for (; size >= WORD_SIZE; at += WORD_SIZE, size -= WORD_SIZE)
        hash = mixed(hash, load_u64(at));
    uint64_t rest = (uint64_t)size;
    while (size-- > 0)
        rest = rest << 8 | *at++;
    return mixed(hash, rest);
}

/* What must be the same in events that are alike. False if the event is too short for it. */
static int
what_counts(const Likes *all, Py_ssize_t event, enum kind kind, const unsigned char **begin, Py_ssize_t *size)
{
    int64_t at = get(all->begins, event), end = get(all->ends, event);

    if (at < 0 || at > end || end > all->size)
        return 0;
    if (kind == TABLE_MAP) {
        *begin = all->data + at + HEADER_SIZE;
        *size = (Py_ssize_t)(end - at - HEADER_SIZE);
        return *size >= WORD_SIZE;
    }
    *begin = all->data + at + WIDTH_AT;
    int64_t left = end - at - WIDTH_AT;
    if (left < 3)
        return 0;
    int64_t width = **begin, head = 1;
    if (width == WIDTH_TWO_BYTES) {
        width = load_u16(*begin + 1);
        head = 3;
    } else if (width > WIDTH_ONE_BYTE_MAX)
        return 0;
    head += (width + 7) / 8 * (kind == ROWS_TWICE ? 2 : 1);
    *size = (Py_ssize_t)head;
    return head <= left;
}

/* The first event that is like this one, which is itself if there is none; NOBODY if it is not to be told. */
static Py_ssize_t
first_like(Likes *all, Py_ssize_t event, enum kind kind, Py_ssize_t map)
{
    const unsigned char *begin, *other;
    Py_ssize_t size, other_size;

    if (!what_counts(all, event, kind, &begin, &size))
        return NOBODY;
    /* The body of a map begins with its table id; the rest is compared anyway. */
    Py_ssize_t hashed = kind == TABLE_MAP ? WORD_SIZE : size;
    uint64_t hash = mixed(mixed((uint64_t)size, (uint64_t)map), all->types[event]);
    hash = hash_of(begin, hashed, hash);
    if (kind == TABLE_MAP)
        hash = mixed(hash, load_u64(begin + size - WORD_SIZE));
    for (size_t step = 0; step < STEPS_MAX; step++) {
        First *first = &all->firsts[(hash + step) & all->mask];
        if (!first->is_taken) {
            *first = (First){event, map, hash, 1};
            return event;
        }
        if (first->hash != hash || first->map != map || all->types[first->event] != all->types[event])
            continue;
        if (what_counts(all, first->event, kind, &other, &other_size) && other_size == size
            && memcmp(begin, other, (size_t)size) == 0)
            return first->event;
    }
    return NOBODY;
}

static uint64_t
id_at(const unsigned char *at)
{
    return (uint64_t)load_u32(at) | (uint64_t)load_u16(at + 4) << 32;
}

static Map *
map_of(Likes *all, uint64_t id)
{
    for (int i = 0; i < all->map_count; i++)
        if (all->maps[i].id == id)
            return &all->maps[i];
    return NULL;
}

static void
look_at_map(Likes *all, Py_ssize_t event, int is_last_group)
{
    int64_t at = get(all->begins, event);
    Py_ssize_t like = first_like(all, event, TABLE_MAP, NOBODY);
    if (like != NOBODY)
        put(all->likes, event, like);
    all->looked_at[event] = is_last_group || like == NOBODY || like == event;
    if (get(all->ends, event) - at < HEADER_SIZE + ID_SIZE)
        return;
    uint64_t id = id_at(all->data + at + HEADER_SIZE);
    Map *map = map_of(all, id);
    if (map == NULL) {
        if (all->map_count == MAPS_MAX) {
            all->looked_at[event] = 1;
            return;
        }
        map = &all->maps[all->map_count++];
        map->id = id;
    }
    map->event = event;
}

static void
look_at_rows(Likes *all, Py_ssize_t event, enum kind kind)
{
    int64_t at = get(all->begins, event);
    all->looked_at[event] = 1;
    if (get(all->ends, event) - at < WIDTH_AT)
        return;
    Map *map = map_of(all, id_at(all->data + at + HEADER_SIZE));
    if (map == NULL)
        return;
    Py_ssize_t like = first_like(all, event, kind, (Py_ssize_t)get(all->likes, map->event));
    if (like == NOBODY || like == event) {
        all->looked_at[map->event] = 1;
        return;
    }
    all->looked_at[event] = 0;
    put(all->likes, event, like);
}

static void
find_all_likes(Likes *all, const unsigned char *kinds)
{
    int64_t group = -1, last = all->count ? get(all->groups, all->count - 1) : 0;
    for (Py_ssize_t event = 0; event < all->count; event++) {
        int64_t own = get(all->groups, event), at = get(all->begins, event), end = get(all->ends, event);
        if (event == 0 || own != group) {
            group = own;
            all->map_count = 0;
        }
        put(all->likes, event, event);
        all->looked_at[event] = 1;
        enum kind kind = (enum kind)kinds[all->types[event]];
        if (at < 0 || end > all->size || end < at || end - at < HEADER_SIZE)
            continue;
        if (kind == TABLE_MAP)
            look_at_map(all, event, own == last);
        else if (kind == ROWS || kind == ROWS_TWICE)
            look_at_rows(all, event, kind);
    }
}

PyDoc_STRVAR(find_likes_doc,
"find_likes(data, type, begin, end, group, kinds, looked_at, likes)\n--\n\n"
"See `repeats.likes`: writes the last two.");

static PyObject *
find_likes(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, types, begins, ends, groups, kinds, looked_at, likes;
    PyObject *result = NULL;

    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*w*w*:find_likes", &data, &types, &begins, &ends, &groups, &kinds, &looked_at,
                          &likes))
        return NULL;
    Py_ssize_t count = types.len, words = count * WORD_SIZE;
    if (begins.len != words || ends.len != words || groups.len != words || likes.len != words || looked_at.len != count
        || kinds.len != 256) {
        wrong_arrays();
        goto done;
    }
    size_t room = FIRSTS_MIN;
    while (room < FIRSTS_MAX && room < (size_t)count * 2)
        room *= 2;
    First *firsts = PyMem_Calloc(room, sizeof(First));
    if (firsts == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    Likes all = {
        .data = data.buf, .types = types.buf, .size = data.len, .count = count, .begins = begins.buf, .ends = ends.buf,
        .groups = groups.buf, .looked_at = looked_at.buf, .likes = likes.buf, .firsts = firsts, .mask = room - 1,
    };
    PyThreadState *unlocked = data.len >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    find_all_likes(&all, kinds.buf);
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    PyMem_Free(firsts);
    result = Py_None;
    Py_INCREF(result);

done:
    PyBuffer_Release(&data);
    PyBuffer_Release(&types);
    PyBuffer_Release(&begins);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&groups);
    PyBuffer_Release(&kinds);
    PyBuffer_Release(&looked_at);
    PyBuffer_Release(&likes);
    return result;
}

/* --- rows and their values (image.py) --- */

/* The columns of an image, a byte each (`image.code`): the bytes of a value, or with this bit those of the length in front. */
#define HAS_LENGTH 0x80
#define LENGTH_BYTES_MAX 4

typedef struct {
    const unsigned char *codes;
    Py_ssize_t columns, null_bytes;
} Image;

/* Where the values of the rows of a block lie: [column][row]; and of all rows what is NULL. */
#define BLOCK_ROWS 256

typedef struct {
    char *at, *lengths;
    unsigned char *nulls, *flags;
    Py_ssize_t rows, begin; /* all, and those in front of the block */
} Fields;

#define HAS_NULLS 1
#define HAS_NONE 2

static int
is_known(const Py_buffer *codes)
{
    for (Py_ssize_t i = 0; i < codes->len; i++) {
        unsigned char code = ((const unsigned char *)codes->buf)[i];
        if (code & HAS_LENGTH && ((code & ~HAS_LENGTH) == 0 || (code & ~HAS_LENGTH) > LENGTH_BYTES_MAX))
            return 0;
    }
    return 1;
}

static inline int64_t
load_length(const unsigned char *at, int bytes)
{
    switch (bytes) {
    case 1:
        return *at;
    case 2:
        return load_u16(at);
    case 3:
        return load_u16(at) | (int64_t)at[2] << 16;
    default:
        return load_u32(at);
    }
}

/* The end of the image that begins at `at`, or NULL if it is not by `stop`. If there are fields, its places are written as those of
 * a row of the block, from a column on. The bytes of values that have lengths are added up, column by column, if there are sums. */
static inline const unsigned char *
pass_image(const Image *image, const unsigned char *at, const unsigned char *stop, const unsigned char *data, Fields *fields,
           void *sums, Py_ssize_t column, Py_ssize_t row)
{
    const unsigned char *nulls = at;
    if (stop - at < image->null_bytes)
        return NULL;
    at += image->null_bytes;
    for (Py_ssize_t i = 0; i < image->columns; i++) {
        int is_null = nulls[i >> 3] >> (i & 7) & 1;
        int64_t size = 0;
        if (!is_null) {
            int code = image->codes[i];
            size = code;
            if (code & HAS_LENGTH) {
                int bytes = code & ~HAS_LENGTH;
                if (stop - at < bytes)
                    return NULL;
                size = load_length(at, bytes);
                at += bytes;
            }
            if (stop - at < size)
                return NULL;
        }
        if (sums != NULL && image->codes[i] & HAS_LENGTH)
            put(sums, column + i, get(sums, column + i) + size);
        if (fields != NULL) {
            Py_ssize_t place = (column + i) * BLOCK_ROWS + row;
            put(fields->at, place, at - data);
            put(fields->lengths, place, size);
            fields->nulls[(column + i) * fields->rows + fields->begin + row] = (unsigned char)is_null;
            fields->flags[column + i] |= (unsigned char)is_null; /* HAS_NULLS */
        }
        at += size;
    }
    return at;
}

/* Rows of events that lie one behind the other and end at these places, in one image or two. */
typedef struct {
    Py_buffer data, ends, first, second; /* `second` is None where there is one image */
    Image images[2];
    int image_count;
    Py_ssize_t columns;
} Rows;

static void
release_rows(Rows *rows)
{
    PyBuffer_Release(&rows->data);
    PyBuffer_Release(&rows->ends);
    PyBuffer_Release(&rows->first);
    PyBuffer_Release(&rows->second);
}

static int
take_images(Rows *rows)
{
    const Py_buffer *codes[2] = {&rows->first, &rows->second};
    rows->image_count = rows->second.buf == NULL ? 1 : 2;
    rows->columns = 0;
    for (int i = 0; i < rows->image_count; i++) {
        if (!is_known(codes[i]))
            return 0;
        rows->images[i] = (Image){codes[i]->buf, codes[i]->len, (codes[i]->len + 7) / 8};
        rows->columns += codes[i]->len;
    }
    return rows->columns > 0;
}

static inline const unsigned char *
pass_row(const Rows *rows, const unsigned char *at, const unsigned char *stop, Fields *fields, void *sums, Py_ssize_t row)
{
    const unsigned char *begin = at;
    for (int i = 0; i < rows->image_count && at != NULL; i++)
        at = pass_image(&rows->images[i], at, stop, rows->data.buf, fields, sums, i ? rows->images[0].columns : 0, row);
    return at == begin ? NULL : at; /* rows without bytes would never end */
}

/* How many rows there are; DAMAGED if they do not end with their events. */
static Py_ssize_t
count_all(const Rows *rows, void *counts, void *sums)
{
    const unsigned char *begin = rows->data.buf, *at = begin;
    Py_ssize_t count = 0, events = rows->ends.len / WORD_SIZE;

    for (Py_ssize_t event = 0; event < events; event++) {
        int64_t end = get(rows->ends.buf, event);
        if (end < at - begin || end > rows->data.len)
            return DAMAGED;
        Py_ssize_t before = count;
        for (; at < begin + end; count++)
            if ((at = pass_row(rows, at, begin + end, NULL, sums, 0)) == NULL)
                return DAMAGED;
        put(counts, event, count - before);
    }
    return count;
}

PyDoc_STRVAR(count_rows_doc,
"count_rows(data, ends, first, second, counts, sums)\n--\n\n"
"The rows of events that end at these places. `counts` gets those of each event, `sums` by column the bytes of values that\n"
"have a length. -1 if rows do not end with their events.");

static PyObject *
count_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    Rows rows;
    Py_buffer counts, sums;
    PyObject *result = NULL;

    if (!PyArg_ParseTuple(args, "y*y*y*z*w*w*:count_rows", &rows.data, &rows.ends, &rows.first, &rows.second, &counts, &sums))
        return NULL;
    if (!take_images(&rows) || counts.len != rows.ends.len || sums.len != rows.columns * WORD_SIZE)
        wrong_arrays();
    else {
        PyThreadState *unlocked = rows.data.len >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
        memset(sums.buf, 0, (size_t)sums.len);
        Py_ssize_t count = count_all(&rows, counts.buf, sums.buf);
        if (unlocked != NULL)
            PyEval_RestoreThread(unlocked);
        result = PyLong_FromSsize_t(count);
    }
    release_rows(&rows);
    PyBuffer_Release(&counts);
    PyBuffer_Release(&sums);
    return result;
}

/* --- bytes of many places (arrays.py) --- */

#define SHORT_COPY 16

PyDoc_STRVAR(copy_ranges_doc,
"copy_ranges(data, begins, ends, offsets)\n--\n\n"
"See `arrays.ranges`: the bytes, one behind the other; `offsets` (i4) gets where each begins, and the end.");

/* A range, held to the bytes that there are. */
static inline Py_ssize_t
hold_range(const Py_buffer *data, int64_t *begin, int64_t end)
{
    if (*begin < 0)
        *begin = 0;
    if (end > data->len)
        end = data->len;
    return *begin < end ? (Py_ssize_t)(end - *begin) : 0;
}

static void
copy_all(const Py_buffer *data, const Py_buffer *begins, const Py_buffer *ends, int32_t *offsets, char *out, Py_ssize_t room)
{
    const char *from = data->buf;
    Py_ssize_t at = 0, count = begins->len / WORD_SIZE;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t begin = get(begins->buf, i);
        Py_ssize_t size = hold_range(data, &begin, get(ends->buf, i));
        offsets[i] = (int32_t)at;
        if (size > room - at) /* somebody writes to the arrays meanwhile */
            size = room - at;
        if (size <= SHORT_COPY && room - at >= SHORT_COPY && data->len - begin >= SHORT_COPY)
            memcpy(out + at, from + begin, SHORT_COPY); /* the next ones write over what is too much */
        else if (size)
            memcpy(out + at, from + begin, (size_t)size);
        at += size;
    }
    offsets[count] = (int32_t)at;
}

static PyObject *
copy_ranges(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, begins, ends, offsets;
    PyObject *result = NULL;

    if (!PyArg_ParseTuple(args, "y*y*y*w*:copy_ranges", &data, &begins, &ends, &offsets))
        return NULL;
    Py_ssize_t count = begins.len / WORD_SIZE;
    int64_t total = 0;
    if (begins.len != ends.len || offsets.len != (count + 1) * (Py_ssize_t)sizeof(int32_t)
        || (uintptr_t)offsets.buf % sizeof(int32_t)) {
        wrong_arrays();
        goto done;
    }
    for (Py_ssize_t i = 0; i < count && total <= INT32_MAX; i++) {
        int64_t begin = get(begins.buf, i);
        total += hold_range(&data, &begin, get(ends.buf, i));
    }
    if (total > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "more bytes than offsets of 32 bits have room for");
        goto done;
    }
    result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (result != NULL) {
        char *out = PyBytes_AsString(result); /* nobody else knows it yet */
        PyThreadState *unlocked = total >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
        copy_all(&data, &begins, &ends, offsets.buf, out, (Py_ssize_t)total);
        if (unlocked != NULL)
            PyEval_RestoreThread(unlocked);
    }

done:
    PyBuffer_Release(&data);
    PyBuffer_Release(&begins);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&offsets);
    return result;
}

/* --- values of a column (numbers.py, temporal.py) --- */

/* The values of a column, by their places, and where they go to. */
typedef struct {
    const unsigned char *data, *nulls;
    const void *places;
    void *out;
    Py_ssize_t size, count;
    int one, other; /* what the type has: sizes, digits */
} Column;

static inline int
is_null(const Column *column, Py_ssize_t i)
{
    return column->nulls != NULL && column->nulls[i];
}

static uint64_t
load_near_end(const Column *column, int64_t at)
{
    unsigned char word[WORD_SIZE] = {0};
    if (at >= 0 && at < column->size)
        memcpy(word, column->data + at, (size_t)(column->size - at));
    return load_u64(word);
}

/* Eight bytes, little endian; zeros for what is behind the end. */
static inline uint64_t
word_at(const Column *column, int64_t at)
{
    if (at >= 0 && at <= column->size - WORD_SIZE)
        return load_u64(column->data + at);
    return load_near_end(column, at);
}

static inline uint64_t
turned(uint64_t word)
{
#if defined(__GNUC__)
    return __builtin_bswap64(word);
#else
    uint64_t found = 0;
    for (int i = 0; i < WORD_SIZE; i++, word >>= 8)
        found = found << 8 | (word & 0xFF);
    return found;
#endif
}

/* Of 1 to 8 bytes. */
static inline uint64_t
big_endian(const Column *column, int64_t at, int size)
{
    return turned(word_at(column, at)) >> (WORD_BITS - 8 * size);
}

/* Integers of `one` bytes, with a sign or without (`other`), as wide as there is room for. */
static int
read_integers(Column *column, Py_ssize_t width)
{
    int unused = WORD_BITS - 8 * column->one;
    for (Py_ssize_t i = 0; i < column->count; i++) {
        uint64_t word = word_at(column, get(column->places, i)) << unused;
        word = column->other ? word >> unused : (uint64_t)((int64_t)word >> unused);
        switch (width) {
        case 1:
            ((uint8_t *)column->out)[i] = (uint8_t)word;
            break;
        case 2:
            ((uint16_t *)column->out)[i] = (uint16_t)word;
            break;
        case 4:
            ((uint32_t *)column->out)[i] = (uint32_t)word;
            break;
        default:
            ((uint64_t *)column->out)[i] = word;
        }
    }
    return SOUND;
}

static const int group_sizes[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 4};
#define GROUP_DIGITS 9
static const uint32_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000};

typedef struct {
    int size;
    uint32_t limit;
} DigitGroup;

#define DECIMAL_DIGITS_MAX 38
#define DIGIT_GROUPS_MAX 8
#define HALF_BITS 32
#define HALF_MASK 0xFFFFFFFFu

static int
digit_groups(int digits, int scale, DigitGroup *groups)
{
    int counts[2] = {digits - scale, scale}, found = 0;
    for (int part = 0; part < 2; part++) {
        int rest = counts[part] % GROUP_DIGITS, whole = counts[part] / GROUP_DIGITS;
        if (rest && part == 0)
            groups[found++] = (DigitGroup){group_sizes[rest], tens[rest]};
        while (whole--)
            groups[found++] = (DigitGroup){group_sizes[GROUP_DIGITS], tens[GROUP_DIGITS]};
        if (rest && part == 1)
            groups[found++] = (DigitGroup){group_sizes[rest], tens[rest]};
    }
    return found;
}

/* DECIMAL of `one` digits, `other` of them behind the point: numbers of 128 bits, low word first. */
static int
read_decimals(Column *column, Py_ssize_t Py_UNUSED(width))
{
    DigitGroup groups[DIGIT_GROUPS_MAX];
    int count = digit_groups(column->one, column->other, groups);
    uint64_t *out = column->out;

    for (Py_ssize_t i = 0; i < column->count; i++) {
        int64_t at = get(column->places, i);
        uint64_t low = 0, high = 0;
        if (is_null(column, i)) {
            out[2 * i] = out[2 * i + 1] = 0;
            continue;
        }
        int is_negative = (word_at(column, at) & 0x80) == 0;
        for (int g = 0; g < count; g++) {
            int size = groups[g].size;
            uint64_t digits = big_endian(column, at, size);
            if (g == 0)
                digits ^= (uint64_t)0x80 << 8 * (size - 1);
            if (is_negative)
                digits ^= ((uint64_t)1 << 8 * size) - 1;
            if (digits >= groups[g].limit)
                return DAMAGED;
            uint64_t first = (low & HALF_MASK) * groups[g].limit + digits;
            uint64_t second = (low >> HALF_BITS) * groups[g].limit + (first >> HALF_BITS);
            low = second << HALF_BITS | (first & HALF_MASK);
            high = high * groups[g].limit + (second >> HALF_BITS);
            at += size;
        }
        if (is_negative) {
            low = ~low + 1;
            high = ~high + (low == 0);
        }
        out[2 * i] = low;
        out[2 * i + 1] = high;
    }
    return SOUND;
}

/* Stands for no date, in place of its number. */
#define NO_TIME INT64_MIN
#define NO_DAY INT32_MIN
#define YEAR_MAX 9999
#define DAY_S 86400

/* Days since 1970, or NO_DAY for a date that is none. By years that begin in March (H. Hinnant, "chrono-Compatible Low-Level Date
 * Algorithms"). */
static inline int32_t
days_of(int64_t year, int month, int day)
{
    static const unsigned char lengths[] = {0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0, 0, 0};
    if (year < 1 || year > YEAR_MAX || day < 1 || month > 15 || day > lengths[month]) {
        int is_leap = year >= 1 && year <= YEAR_MAX && year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        if (!is_leap || month != 2 || day != 29)
            return NO_DAY;
    }
    int32_t y = (int32_t)year - (month <= 2);
    int32_t era = y / 400, of_era = y - era * 400; /* the year before the first is not negative */
    int32_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int
read_dates(Column *column, Py_ssize_t Py_UNUSED(width))
{
    int32_t *out = column->out;
    int found = SOUND;
    for (Py_ssize_t i = 0; i < column->count; i++) {
        int packed = (int)(word_at(column, get(column->places, i)) & 0xFFFFFF);
        out[i] = days_of(packed >> 9, packed >> 5 & 15, packed & 31);
        if (out[i] == NO_DAY && !is_null(column, i))
            found = SOME_ARE_NONE;
    }
    return found;
}

/* The fraction in the last bytes of a number, in microseconds; what is too much is not below MICROSECONDS. */
static inline int64_t
microseconds(uint64_t number, int size)
{
    static const int64_t units[] = {0, 10000, 100, 1};
    return (int64_t)(number & (((uint64_t)1 << 8 * size) - 1)) * units[size];
}

#define DATETIME_BIAS ((int64_t)1 << 39)

static int
read_datetimes(Column *column, Py_ssize_t Py_UNUSED(width))
{
    int size = (column->one + 1) / 2, found = SOUND;
    int64_t *out = column->out;

    for (Py_ssize_t i = 0; i < column->count; i++) {
        if (is_null(column, i)) {
            out[i] = 0;
            continue;
        }
        uint64_t word = big_endian(column, get(column->places, i), 5 + size);
        int64_t packed = (int64_t)(word >> 8 * size) - DATETIME_BIAS;
        int64_t fraction = microseconds(word, size);
        if (packed < 0)
            return DAMAGED;
        int64_t months = packed >> 22, year = months / 13;
        int hour = (int)(packed >> 12 & 31), minute = (int)(packed >> 6 & 63), second = (int)(packed & 63);
        if (year > YEAR_MAX || hour > 23 || minute > 59 || second > 59 || fraction >= MICROSECONDS)
            return DAMAGED;
        int32_t days = days_of(year, (int)(months % 13), (int)(packed >> 17 & 31));
        if (days == NO_DAY) {
            out[i] = NO_TIME;
            found = SOME_ARE_NONE;
            continue;
        }
        out[i] = ((int64_t)days * DAY_S + hour * 3600 + minute * 60 + second) * MICROSECONDS + fraction;
    }
    return found;
}

static int
read_timestamps(Column *column, Py_ssize_t Py_UNUSED(width))
{
    int size = (column->one + 1) / 2, found = SOUND;
    int64_t *out = column->out;

    for (Py_ssize_t i = 0; i < column->count; i++) {
        if (is_null(column, i)) {
            out[i] = 0;
            continue;
        }
        uint64_t word = big_endian(column, get(column->places, i), 4 + size);
        int64_t fraction = microseconds(word, size);
        if (fraction >= MICROSECONDS)
            return DAMAGED;
        out[i] = (int64_t)(word >> 8 * size) * MICROSECONDS + fraction;
        if (out[i] == 0) {
            out[i] = NO_TIME;
            found = SOME_ARE_NONE;
        }
    }
    return found;
}

#define HOURS_MAX 838

static int
read_times(Column *column, Py_ssize_t Py_UNUSED(width))
{
    int size = (column->one + 1) / 2;
    int64_t *out = column->out;

    for (Py_ssize_t i = 0; i < column->count; i++) {
        if (is_null(column, i)) {
            out[i] = 0;
            continue;
        }
        int64_t number = (int64_t)big_endian(column, get(column->places, i), 3 + size);
        number -= (int64_t)0x80 << 8 * (2 + size);
        int64_t magnitude = number < 0 ? -number : number;
        int64_t clock = magnitude >> 8 * size, fraction = microseconds((uint64_t)magnitude, size);
        int64_t hour = clock >> 12, minute = clock >> 6 & 63, second = clock & 63;
        if (hour > HOURS_MAX || minute > 59 || second > 59 || fraction >= MICROSECONDS)
            return DAMAGED;
        int64_t value = (hour * 3600 + minute * 60 + second) * MICROSECONDS + fraction;
        out[i] = number < 0 ? -value : value;
    }
    return SOUND;
}

enum reader { INTEGERS, DECIMALS, DATES, DATETIMES, TIMESTAMPS, TIMES, READERS };

typedef struct {
    int (*read)(Column *column, Py_ssize_t width);
    Py_ssize_t width; /* bytes of a value that is made; 0: 1, 2, 4 or 8 */
    int one_min, one_max;
} Reader;

static const Reader readers[READERS] = {
    [INTEGERS] = {read_integers, 0, 1, 8},     [DECIMALS] = {read_decimals, 16, 1, DECIMAL_DIGITS_MAX},
    [DATES] = {read_dates, 4, 0, 0},           [DATETIMES] = {read_datetimes, 8, 0, 6},
    [TIMESTAMPS] = {read_timestamps, 8, 0, 6}, [TIMES] = {read_times, 8, 0, 6},
};

/* Whether there is such a reader, for so many values of what is given. */
static int
fits_reader(int number, int one, int other, Py_ssize_t count, const Py_buffer *out, Py_ssize_t *width)
{
    if (number < 0 || number >= READERS)
        return 0;
    const Reader *reader = &readers[number];
    *width = reader->width ? reader->width : count ? out->len / count : WORD_SIZE;
    if (out->len != count * *width || one < reader->one_min || one > reader->one_max)
        return 0;
    if (number == DECIMALS)
        return other >= 0 && other <= one && (uintptr_t)out->buf % WORD_SIZE == 0;
    return (*width == 1 || *width == 2 || *width == 4 || *width == 8) && (uintptr_t)out->buf % (size_t)*width == 0;
}

PyDoc_STRVAR(read_column_doc,
"read_column(reader, data, at, nulls, out, one=0, other=0)\n--\n\n"
"The values at some places, by the function of that number: -1 if one is none, 1 if some stand for no date.");

static PyObject *
read_column(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, at, nulls, out;
    PyObject *result = NULL;
    Column column = {0};
    int number;

    if (!PyArg_ParseTuple(args, "iy*y*z*w*|ii:read_column", &number, &data, &at, &nulls, &out, &column.one, &column.other))
        return NULL;
    Py_ssize_t count = at.len / WORD_SIZE;
    Py_ssize_t width;
    int fits = fits_reader(number, column.one, column.other, count, &out, &width) && (nulls.buf == NULL || nulls.len == count);
    if (fits) {
        column.data = data.buf;
        column.nulls = nulls.buf;
        column.places = at.buf;
        column.out = out.buf;
        column.size = data.len;
        column.count = count;
        PyThreadState *unlocked = out.len >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
        int found = readers[number].read(&column, width);
        if (unlocked != NULL)
            PyEval_RestoreThread(unlocked);
        result = PyLong_FromLong(found);
    } else
        wrong_arrays();
    PyBuffer_Release(&data);
    PyBuffer_Release(&at);
    PyBuffer_Release(&nulls);
    PyBuffer_Release(&out);
    return result;
}

/* What becomes of a column of rows: its values by a reader, or one of these. */
#define BYTES (-1)    /* offsets (i4) and the bytes; `one`: the most that a value has */
#define PLACES (-2)   /* places and lengths */
#define UNWANTED (-3) /* nothing */

typedef struct {
    int reader, one, other;
    Py_buffer out, more;
    Py_ssize_t width, filled;
} Plan;

static int
fits_plan(Plan *plan, Py_ssize_t rows)
{
    switch (plan->reader) {
    case BYTES:
        return plan->out.len == (rows + 1) * (Py_ssize_t)sizeof(int32_t) && plan->more.len <= INT32_MAX
            && (uintptr_t)plan->out.buf % sizeof(int32_t) == 0;
    case PLACES:
        return plan->out.len == rows * WORD_SIZE && plan->more.len == plan->out.len;
    case UNWANTED:
        return 1;
    default:
        return fits_reader(plan->reader, plan->one, plan->other, rows, &plan->out, &plan->width);
    }
}

/* The bytes of a block of values, behind those of the blocks before. */
static int
read_bytes(Plan *plan, const Column *column, const void *lengths, Py_ssize_t begin)
{
    char *out = plan->more.buf;
    Py_ssize_t room = plan->more.len, at = plan->filled;
    int32_t *offsets = (int32_t *)plan->out.buf + begin;

    for (Py_ssize_t i = 0; i < column->count; i++) {
        int64_t place = get(column->places, i), size = get(lengths, i);
        if (size > room - at || size > plan->one)
            return DAMAGED;
        offsets[i] = (int32_t)at;
        if (size <= SHORT_COPY && room - at >= SHORT_COPY && column->size - place >= SHORT_COPY)
            memcpy(out + at, column->data + place, SHORT_COPY); /* the next ones write over what is too much */
        else if (size)
            memcpy(out + at, column->data + place, (size_t)size);
        at += size;
    }
    offsets[column->count] = (int32_t)at;
    plan->filled = at;
    return SOUND;
}

/* The values of a block. */
static int
read_block(const Rows *rows, Fields *fields, Plan *plans, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < rows->columns; i++) {
        Plan *plan = &plans[i];
        const char *lengths = fields->lengths + i * BLOCK_ROWS * WORD_SIZE;
        Column column = {
            .data = rows->data.buf, .size = rows->data.len, .count = count, .one = plan->one, .other = plan->other,
            .places = fields->at + i * BLOCK_ROWS * WORD_SIZE,
            .nulls = fields->flags[i] & HAS_NULLS ? fields->nulls + i * fields->rows + fields->begin : NULL,
        };
        int found = SOUND;
        if (plan->reader == PLACES) {
            memcpy((char *)plan->out.buf + fields->begin * WORD_SIZE, column.places, (size_t)(count * WORD_SIZE));
            memcpy((char *)plan->more.buf + fields->begin * WORD_SIZE, lengths, (size_t)(count * WORD_SIZE));
        } else if (plan->reader == BYTES)
            found = read_bytes(plan, &column, lengths, fields->begin);
        else if (plan->reader != UNWANTED) {
            column.out = (char *)plan->out.buf + fields->begin * plan->width;
            found = readers[plan->reader].read(&column, plan->width);
        }
        if (found == DAMAGED)
            return DAMAGED;
        if (found == SOME_ARE_NONE)
            fields->flags[i] |= HAS_NONE;
    }
    return SOUND;
}

static int
read_all(const Rows *rows, Fields *fields, Plan *plans)
{
    const unsigned char *begin = rows->data.buf, *at = begin;
    Py_ssize_t events = rows->ends.len / WORD_SIZE, row = 0;

    for (Py_ssize_t event = 0; event < events; event++) {
        int64_t end = get(rows->ends.buf, event);
        if (end < at - begin || end > rows->data.len)
            return DAMAGED;
        while (at < begin + end) {
            if (fields->begin + row == fields->rows)
                return DAMAGED;
            if ((at = pass_row(rows, at, begin + end, fields, NULL, row)) == NULL)
                return DAMAGED;
            if (++row == BLOCK_ROWS) {
                if (read_block(rows, fields, plans, row) == DAMAGED)
                    return DAMAGED;
                fields->begin += row;
                row = 0;
            }
        }
    }
    if (fields->begin + row != fields->rows)
        return DAMAGED;
    return read_block(rows, fields, plans, row);
}

/* How many plans were taken, with their arrays; fewer than there are, with an exception, if one is wrong. */
static Py_ssize_t
take_plans(PyObject *given, Plan *plans, Py_ssize_t count, Py_ssize_t rows)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        Plan *plan = &plans[i];
        PyObject *one = PyTuple_GetItem(given, i); /* borrowed */
        if (one == NULL || !PyArg_ParseTuple(one, "iiiw*w*", &plan->reader, &plan->one, &plan->other, &plan->out, &plan->more))
            return i;
        if (!fits_plan(plan, rows)) {
            wrong_arrays();
            return i + 1;
        }
    }
    return count;
}

PyDoc_STRVAR(read_rows_doc,
"read_rows(data, ends, first, second, plans, nulls, flags)\n--\n\n"
"The values of those rows. A plan for each column: (reader, one, other, out, more), see `image.RowLayout`. `nulls` is\n"
"[column][row], and `flags` tells whether a column has a NULL (1), and what is no date (2). False if bytes are damaged.");

static PyObject *
read_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    Rows rows;
    Py_buffer nulls, flags;
    PyObject *given, *result = NULL;
    Plan *plans = NULL;
    char *block = NULL;
    Py_ssize_t taken = 0;

    if (!PyArg_ParseTuple(args, "y*y*y*z*O!w*w*:read_rows", &rows.data, &rows.ends, &rows.first, &rows.second, &PyTuple_Type,
                          &given, &nulls, &flags))
        return NULL;
    if (!take_images(&rows) || flags.len != rows.columns || nulls.len % rows.columns || PyTuple_Size(given) != rows.columns) {
        wrong_arrays();
        goto done;
    }
    Fields fields = {.nulls = nulls.buf, .flags = flags.buf, .rows = nulls.len / rows.columns};
    plans = PyMem_Calloc((size_t)rows.columns, sizeof(Plan));
    block = PyMem_Malloc((size_t)rows.columns * 2 * BLOCK_ROWS * WORD_SIZE);
    if (plans == NULL || block == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    fields.at = block;
    fields.lengths = block + rows.columns * BLOCK_ROWS * WORD_SIZE;
    taken = take_plans(given, plans, rows.columns, fields.rows);
    if (PyErr_Occurred())
        goto done;
    PyThreadState *unlocked = rows.data.len >= UNLOCK_BYTES ? PyEval_SaveThread() : NULL;
    memset(fields.flags, 0, (size_t)rows.columns);
    int found = read_all(&rows, &fields, plans);
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    result = PyBool_FromLong(found != DAMAGED);

done:
    for (Py_ssize_t i = 0; i < taken; i++) {
        PyBuffer_Release(&plans[i].out);
        PyBuffer_Release(&plans[i].more);
    }
    PyMem_Free(plans);
    PyMem_Free(block);
    release_rows(&rows);
    PyBuffer_Release(&nulls);
    PyBuffer_Release(&flags);
    return result;
}

static PyMethodDef methods[] = {
    {"copy_ranges", copy_ranges, METH_VARARGS, copy_ranges_doc},
    {"count_events", count_events, METH_VARARGS, count_events_doc},
    {"count_rows", count_rows, METH_VARARGS, count_rows_doc},
    {"fill_events", fill_events, METH_VARARGS, fill_events_doc},
    {"find_likes", find_likes, METH_VARARGS, find_likes_doc},
    {"read_column", read_column, METH_VARARGS, read_column_doc},
    {"read_rows", read_rows, METH_VARARGS, read_rows_doc},
    {NULL, NULL, 0, NULL},
};

OPTIONAL_MODULE(PyInit__speedups, "binlog_protocol.row_columns._speedups", "The loops of row columns in C.", refuse_if_unwanted)
