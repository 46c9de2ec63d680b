// SPDX-License-Identifier: Apache-2.0
// What paper-plugsched.toml takes from elsewhere than `schedlab machine --calibrate`: a message of 100 bytes over a socket
// and a small process, in ns of the clock, which in a virtual machine with --icount are instructions. Medians:
//
//   cc -O2 -o board docs/reproduce/plugsched-2006.c
//   schedlab vm boot --kernel 7.2 --cpus 1 --icount --with ./board -- board
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MESSAGES 5000
#define PROCESSES 200

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;
	return (x > y) - (x < y);
}

static long median(long *values, int count)
{
	qsort(values, count, sizeof(*values), compare);
	return values[count / 2];
}

int main(void)
{
	static long first[MESSAGES], second[MESSAGES];
	char message[100] = { 0 };
	int ends[2];

	for (int i = 0; i < MESSAGES; i++) {
		long before = now();
		first[i] = now() - before;
	}
	long clock = median(first, MESSAGES);

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return perror("socketpair"), 1;
	for (int i = 0; i < MESSAGES; i++) {
		long before = now();
		if (write(ends[0], message, sizeof(message)) != sizeof(message))
			return perror("write"), 1;
		long between = now();
		if (read(ends[1], message, sizeof(message)) != sizeof(message))
			return perror("read"), 1;
		second[i] = now() - between;
		first[i] = between - before;
	}
	printf("write %ld, read %ld\n", median(first, MESSAGES) - clock, median(second, MESSAGES) - clock);

	for (int i = 0; i < PROCESSES; i++) {
		long before = now();
		pid_t child = fork();
		if (!child)
			_exit(0);
		if (child < 0)
			return perror("fork"), 1;
		long between = now();
		waitpid(child, NULL, 0);
		second[i] = now() - between;
		first[i] = between - before;
	}
	printf("fork %ld, until it was waited for %ld\n", median(first, PROCESSES) - clock,
	       median(second, PROCESSES) - clock);
	return 0;
}
