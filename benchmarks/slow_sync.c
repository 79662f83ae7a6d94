/* Makes the disk of a program slower: fdatasync and fsync return no earlier than SYNC_NS nanoseconds after their call,
 * for LD_PRELOAD. The file is synced as before; only what is left of the time is waited for, as a thread waits for a
 * disk. benchmarks/slow_sync.py builds and loads it.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static long long sync_ns;
static int (*real_fdatasync)(int);
static int (*real_fsync)(int);

__attribute__((constructor)) static void load(void) {
    const char *given = getenv("SYNC_NS");
    sync_ns = given == NULL ? 0 : atoll(given);
    real_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
}

static int slow(int (*sync)(int), int file) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    long long ns = end.tv_nsec + sync_ns;
    end.tv_sec += ns / 1000000000;
    end.tv_nsec = ns % 1000000000;
    int result = sync(file);
    int error = errno;
    prctl(PR_SET_TIMERSLACK, 1UL); /* of this thread; 50 µs by default */
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) {
    }
    errno = error;
    return result;
}

int fdatasync(int file) { return slow(real_fdatasync, file); }
int fsync(int file) { return slow(real_fsync, file); }
