<?php $this->layout("layout", ["title" => $title]) ?>
<p title="<?= $e($text) ?>"><?= $this->part("part", ["x" => 1]) ?></p>
