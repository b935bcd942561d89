/* Preloaded into redis-server: the time of day is as wrong as the file in HOLDFAST_CLOCK says, in seconds. What measures how much
   time has passed stays right. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long wrong(void)
{
    char text[32] = "";
    const char *name = getenv("HOLDFAST_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    if (read(file, text, sizeof text - 1) < 0)
        text[0] = 0;
    close(file);
    return strtol(text, NULL, 10);
}

int gettimeofday(struct timeval *time, void *zone)
{
    int outcome = (int)syscall(SYS_gettimeofday, time, zone);
    if (outcome == 0)
        time->tv_sec += wrong();
    return outcome;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int outcome = (int)syscall(SYS_clock_gettime, clock, time);
    if (outcome == 0 && clock == CLOCK_REALTIME)
        time->tv_sec += wrong();
    return outcome;
}

time_t time(time_t *out)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
