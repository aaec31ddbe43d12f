/* Loaded before libc into one worker: its wall clock is off by what the file CHAOS_CLOCK holds, eight
   bytes of seconds. The monotonic clock stays right, as it does when a machine's clock is set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *offset;
static int (*real)(clockid_t, struct timespec *);
static int (*wait_until)(sem_t *, const struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    real = dlsym(RTLD_NEXT, "clock_gettime");
    wait_until = dlsym(RTLD_NEXT, "sem_timedwait");
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    offset = page == MAP_FAILED ? NULL : page;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!real) /* somebody else's constructor comes first */
        begin();
    int failed = real(clock, now);
    if (!failed && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *offset;
    return failed;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec exact;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now)
        *now = exact.tv_sec;
    return exact.tv_sec;
}

/* The kernel, which waits, has the right clock. */
int sem_timedwait(sem_t *semaphore, const struct timespec *until)
{
    struct timespec right = *until;
    if (offset)
        right.tv_sec -= *offset;
    return wait_until(semaphore, &right);
}
