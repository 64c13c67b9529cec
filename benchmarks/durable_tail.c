/* The least that a server between an upstream and its replicas can do: bytes read, made durable, and sent to each.

   durable_tail FILE FD SOCKET...: what comes on FD goes to FILE, behind what came before, and from its beginning again
   where that is full, as in a redo log; then FILE is synced (fdatasync), then the same bytes go to each SOCKET; all of
   them block. No packet and no event is looked at. Ends when FD has no more, with 0; with 1 and a line on standard error
   if anything fails. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

enum { READ = 1 << 16, ROOM = 64 << 20, ZEROS = 1 << 20 };

static void
fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* A file whose blocks are there and written, as those of a redo log are: a sync has no tree of extents to write. */
static int
made(const char *path)
{
    static const char zeros[ZEROS];
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0)
        fail(path);
    for (off_t at = 0; at < ROOM; at += ZEROS)
        if (pwrite(file, zeros, ZEROS, at) != ZEROS)
            fail("pwrite");
    if (fsync(file))
        fail("fsync");
    return file;
}

int
main(int argc, char **argv)
{
    static char buffer[READ];
    if (argc < 4) {
        fputs("usage: durable_tail FILE FD SOCKET...\n", stderr);
        return 2;
    }
    int file = made(argv[1]), upstream = atoi(argv[2]);
    off_t at = 0;
    for (;;) {
        ssize_t some = recv(upstream, buffer, READ, 0);
        if (some < 0)
            fail("recv");
        if (!some)
            return 0;
        if (at + some > ROOM)
            at = 0;
        if (pwrite(file, buffer, (size_t)some, at) != some)
            fail("pwrite");
        if (fdatasync(file))
            fail("fdatasync");
        at += some;
        for (int each = 3; each < argc; each++)
            for (ssize_t sent = 0; sent < some;) {
                ssize_t more = send(atoi(argv[each]), buffer + sent, (size_t)(some - sent), MSG_NOSIGNAL);
                if (more < 0)
                    fail("send");
                sent += more;
            }
    }
}
