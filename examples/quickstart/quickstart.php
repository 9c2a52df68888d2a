<?php
// S=http://NAME:PASSWORD@127.0.0.1:5984 php quickstart.php

function request(string $method, string $path, ?array $body = null): array
{
    // The URL has name and password, which PHP sends.
    $text = file_get_contents(getenv('S') . $path, false, stream_context_create(['http' => [
        'method' => $method,
        'header' => 'Content-Type: application/json',
        'content' => $body === null ? '' : json_encode($body),
        'ignore_errors' => true, // read the body of a 409 too
    ]]));
    $status = (int) explode(' ', $http_response_header[0])[1];
    return [$status, json_decode($text, true)];
}

// A database, and three documents.
echo 'database: ', request('PUT', '/quickstart')[0], "\n";
$docs = [
    ['_id' => 'tea', 'price' => 4.5],
    ['_id' => 'milk', 'price' => 1.25],
    ['_id' => 'pot', 'price' => 24.9],
];
echo 'documents: ', request('POST', '/quickstart/_bulk_docs', ['docs' => $docs])[0], "\n";

// An update has the revision that it replaces: the one that was read.
[, $tea] = request('GET', '/quickstart/tea');
echo 'update: ', request('PUT', '/quickstart/tea', ['price' => 5] + $tea)[0], "\n";

// That revision is no longer the latest: somebody else was faster.
echo 'conflict: ', request('PUT', '/quickstart/tea', ['price' => 6] + $tea)[0], "\n";

// A query.
$query = ['selector' => ['price' => ['$lt' => 10]], 'fields' => ['_id']];
[, $found] = request('POST', '/quickstart/_find', $query);
echo 'found: ', implode(' ', array_column($found['docs'], '_id')), "\n";

request('DELETE', '/quickstart');
