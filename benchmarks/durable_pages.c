/* The least that a receiver of a large transaction can do: a socket read, pages made, checksums made, pages durable.

   durable_pages FD FILE BYTES: FD is a socket on which the dump of a server comes, FILE is made with room for BYTES.
   Packets are taken out of their headers and laid into pages of 16 KiB behind one another: 4 bytes in front, 12 behind,
   of which the last 4 are the CRC-32C of the page. A thread reads and fills, another writes a MiB at a time and has the
   kernel begin with it at once. No event is looked at. The dump ends by a packet of EOF, the file by fdatasync. Prints
   how many bytes of pages are durable, and the microseconds of the processor that it took. Ends with 1 and a line on
   standard error if anything fails. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

enum {
    PAGE = 16384,
    HEAD = 4,
    TAIL = 12,
    RUN_PAGES = 64,
    RUN = PAGE * RUN_PAGES,
    RUNS = 24, /* filled and not yet written */
    READ = 4 << 20,
    PACKET_HEADER = 4,
    EOF_PAYLOAD = 5
};

static unsigned char *runs[RUNS];
static size_t filled_bytes[RUNS];
static unsigned filled, written; /* runs so far; the last one has no bytes */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int file;
static uint32_t table[8][256];

static void
fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void
make_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        table[0][byte] = crc;
    }
    for (int step = 1; step < 8; step++)
        for (int byte = 0; byte < 256; byte++)
            table[step][byte] = table[step - 1][byte] >> 8 ^ table[0][table[step - 1][byte] & 255];
}

#if defined(__x86_64__)
__attribute__((target("sse4.2")))
static uint32_t
crc32c_by_instruction(const unsigned char *at, size_t size)
{
    uint64_t crc = 0xffffffffu, word;
    for (; size >= 8; size -= 8, at += 8) {
        memcpy(&word, at, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; size; size--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at++);
    return ~(uint32_t)crc;
}
#define HAS_INSTRUCTION __builtin_cpu_supports("sse4.2")
#else
#define HAS_INSTRUCTION 0
#define crc32c_by_instruction crc32c_by_tables
#endif

static uint32_t
crc32c_by_tables(const unsigned char *at, size_t size)
{
    uint32_t crc = 0xffffffffu;
    for (; size >= 8; size -= 8, at += 8) {
        crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = table[7][crc & 255] ^ table[6][crc >> 8 & 255] ^ table[5][crc >> 16 & 255] ^ table[4][crc >> 24]
              ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    }
    for (; size; size--)
        crc = crc >> 8 ^ table[0][(crc ^ *at++) & 255];
    return ~crc;
}

static void
seal(unsigned char *page)
{
    uint32_t crc = HAS_INSTRUCTION ? crc32c_by_instruction(page, PAGE - 4) : crc32c_by_tables(page, PAGE - 4);
    memcpy(page + PAGE - 4, &crc, 4);
}

static void *
write_runs(void *unused)
{
    off_t at = 0;
    for (unsigned number = 0;; number++) {
        pthread_mutex_lock(&lock);
        while (filled == number)
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        size_t size = filled_bytes[number % RUNS];
        if (!size)
            return unused;
        for (size_t done = 0; done < size;) {
            ssize_t some = pwrite(file, runs[number % RUNS] + done, size - done, at + (off_t)done);
            if (some < 0)
                fail("pwrite");
            done += (size_t)some;
        }
        if (sync_file_range(file, at, (off_t)size, SYNC_FILE_RANGE_WRITE))
            fail("sync_file_range");
        at += (off_t)size;
        pthread_mutex_lock(&lock);
        written = number + 1;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
    }
}

static void
hand_over(size_t size)
{
    pthread_mutex_lock(&lock);
    filled_bytes[filled % RUNS] = size;
    filled++;
    pthread_cond_signal(&changed);
    while (filled - written == RUNS)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static size_t used; /* bytes of pages in the run that is being filled */
static size_t in_page = HEAD;

static void
put(const unsigned char *data, size_t size)
{
    while (size) {
        unsigned char *page = runs[filled % RUNS] + used;
        size_t some = PAGE - TAIL - in_page;
        if (some > size)
            some = size;
        memcpy(page + in_page, data, some);
        data += some, size -= some, in_page += some;
        if (in_page < PAGE - TAIL)
            return;
        seal(page);
        in_page = HEAD;
        used += PAGE;
        if (used == RUN) {
            hand_over(used);
            used = 0;
        }
    }
}

int
main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: durable_pages FD FILE BYTES\n", stderr);
        return 2;
    }
    int fd = atoi(argv[1]);
    if ((file = open(argv[2], O_RDWR | O_CREAT | O_EXCL, 0600)) < 0)
        fail(argv[2]);
    if ((errno = posix_fallocate(file, 0, atoll(argv[3]))))
        fail("posix_fallocate");
    make_table();
    for (int i = 0; i < RUNS; i++)
        if (!(runs[i] = calloc(1, RUN)))
            fail("calloc");
    unsigned char *buffer = malloc(READ);
    if (!buffer)
        fail("malloc");
    pthread_t writer;
    if ((errno = pthread_create(&writer, NULL, write_runs, NULL)))
        fail("pthread_create");

    unsigned char header[PACKET_HEADER];
    size_t header_bytes = 0, left = 0, begun = 0; /* of the packet that is being read */
    unsigned long long total = 0;
    for (int ended = 0; !ended;) {
        ssize_t some = recv(fd, buffer, READ, 0);
        if (some <= 0)
            fail("recv");
        for (unsigned char *at = buffer, *end = buffer + some; at < end && !ended;) {
            if (!left) {
                header[header_bytes++] = *at++;
                if (header_bytes < PACKET_HEADER)
                    continue;
                header_bytes = 0;
                begun = left = (size_t)header[0] | (size_t)header[1] << 8 | (size_t)header[2] << 16;
                continue;
            }
            size_t here = (size_t)(end - at) < left ? (size_t)(end - at) : left;
            if (left == begun && begun == EOF_PAYLOAD && *at == 0xfe)
                ended = 1;
            else
                put(at, here);
            at += here, left -= here;
        }
    }
    if (in_page > HEAD) {
        unsigned char *page = runs[filled % RUNS] + used;
        memset(page + in_page, 0, PAGE - TAIL - in_page);
        seal(page);
        used += PAGE;
    }
    total = (unsigned long long)filled * RUN + used;
    if (used)
        hand_over(used);
    hand_over(0);
    pthread_join(writer, NULL);
    if (fdatasync(file))
        fail("fdatasync");
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    long long seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
    printf("%llu %lld\n", total, seconds * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    return 0;
}
