<?php

declare(strict_types=1);

namespace App\Controller;

use App\Model\User;
use Apus\Controller;
use Apus\HttpException;
use Apus\Log;
use Apus\Response;
use Apus\Task;

final class GreetingController extends Controller
{
    /** A task does the work after the response. */
    public function add(int $id): Response
    {
        $text = $this->request->json()['text'] ?? null;
        if (!is_string($text) || $text === '' || strlen($text) > 200) {
            throw new HttpException(422, 'A greeting needs a text of at most 200 bytes.');
        }
        $user = User::find($id) ?? throw new HttpException(404, 'There is no such user.');
        Log::info('a greeting is queued', ['user' => $id]);
        Task::queue('greet', ['user' => $user->id, 'text' => $text]);
        return Response::json(['user' => $user->name, 'queued' => true], 202);
    }
}
