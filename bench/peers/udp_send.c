// Sends UDP datagrams of one size, 64 a call, for some seconds: ADDRESS PORT BYTES SECONDS.
// Prints the number of datagrams and the seconds.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#define BURST 64
#define LONGEST 65507

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **arguments) {
    static char payload[LONGEST];
    struct sockaddr_in to = {.sin_family = AF_INET};
    if (count != 5 || inet_pton(AF_INET, arguments[1], &to.sin_addr) != 1) {
        fputs("udp_send ADDRESS PORT BYTES SECONDS\n", stderr);
        return 2;
    }
    to.sin_port = htons(atoi(arguments[2]));
    size_t bytes = strtoul(arguments[3], NULL, 10);
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    if (bytes > LONGEST || s < 0 || connect(s, (struct sockaddr *)&to, sizeof to) != 0) {
        perror("udp_send");
        return 1;
    }
    struct iovec piece = {payload, bytes};
    struct mmsghdr messages[BURST] = {0};
    for (int n = 0; n < BURST; n++) {
        messages[n].msg_hdr.msg_iov = &piece;
        messages[n].msg_hdr.msg_iovlen = 1;
    }
    long sent = 0;
    double begin = now(), end = begin + atof(arguments[4]), time;
    while ((time = now()) < end) {
        int some = sendmmsg(s, messages, BURST, 0);
        sent += some > 0 ? some : 0;
    }
    printf("%ld %f\n", sent, time - begin);
    return 0;
}
